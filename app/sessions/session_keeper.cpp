#include "app/sessions/session_keeper.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "app/device.h"
#include "app/digest.h"
#include "app/version.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb::app {
namespace {

std::string value_of(const Fingerprint& fingerprint, const std::string& fact) {
  const auto found = fingerprint.find(fact);
  return found == fingerprint.end() ? "" : found->second;
}

bool is_in(const std::vector<TokenId>& tokens, std::int32_t vocab) {
  return std::all_of(tokens.begin(), tokens.end(),
                     [&](TokenId token) { return index(token) < vocab; });
}

/// The same conversation with only those ids that `keeps` allows.
template <typename Keeps>
Conversation filtered(const Conversation& from, Keeps keeps) {
  Conversation to;
  to.set_system(from.system());
  for (std::int32_t turn = 1; turn <= from.turns(); ++turn) {
    auto [parent, exchange] = from.turn(turn);
    if (!keeps(exchange.answer.tokens)) exchange.answer = {};
    if (!keeps(exchange.lead)) exchange.lead.clear();
    to.add_after(parent, std::move(exchange));
  }
  to.set_branches(from.branches(), from.branch());
  return to;
}

}  // namespace

SessionKeeper::SessionKeeper(std::optional<SessionFolder> folder, SessionOrigin origin,
                             bool saves_unnamed, SnapshotIo* snapshot_io)
    : folder_(std::move(folder)),
      origin_(std::move(origin)),
      saves_unnamed_(saves_unnamed),
      snapshot_io_(snapshot_io) {}

const SessionFolder& SessionKeeper::need_folder() const {
  if (folder_) return *folder_;
  throw Error(ErrorKind::usage, "sessions: there is no place for them; set HOME or XDG_DATA_HOME");
}

SessionKeeper::Version SessionKeeper::version_of(const std::string& name) const {
  struct stat about {};
  const std::filesystem::path path = need_folder().path_of(name);
  if (::stat(path.c_str(), &about) != 0) {
    if (errno == ENOENT) return {};
    throw Error(ErrorKind::runtime,
                fmt::format("{}: can't be looked at: {}", path.string(), std::strerror(errno)));
  }
  return {.file = about.st_ino,
          .changed_ns = about.st_mtim.tv_sec * std::int64_t{1'000'000'000} + about.st_mtim.tv_nsec};
}

void SessionKeeper::write(const std::string& name, const Saving& saving, Extent extent) {
  const SavedSession session{.fingerprint = origin_.fingerprint,
                             .record = {.model = origin_.model,
                                        .saved_s = std::time(nullptr),
                                        .conversation = saving.conversation}};
  if (snapshot_io_ == nullptr || !saving.sequences) {
    need_folder().write(name, session, nullptr);
    return;
  }
  const bool is_all = extent == Extent::all;
  const SessionMemory memory{.snapshot_io = *snapshot_io_,
                             .sequences = saving.sequences(is_all),
                             .bytes_max = is_all ? ~std::uint64_t{0} : turn_bytes_max};
  need_folder().write(name, session, &memory);
}

/// Under the chat's own name: no other chat may have written there since.
void SessionKeeper::write_own(const std::string& name, const Saving& saving, Extent extent) {
  if (name == name_ && version_.value_or(version_of(name)) != version_of(name)) {
    throw Error(ErrorKind::runtime,
                fmt::format("session '{}' was changed by another chat and is left as it "
                            "is; /save OTHER keeps this one",
                            name));
  }
  write(name, saving, extent);
  name_ = name;
  version_.reset();
  version_ = version_of(name);
}

std::string SessionKeeper::dated_name() const {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> date{};
  const std::size_t size = std::strftime(date.data(), date.size(), "%Y-%m-%d-%H%M%S", &local);
  std::string name(date.data(), size);
  for (int i = 2; need_folder().has(name); ++i) {
    name = fmt::format("{}-{}", std::string_view(date.data(), size), i);
  }
  return name;
}

std::string SessionKeeper::save(const Saving& saving, const std::string& name) {
  const std::string chosen = !name.empty() ? name : !name_.empty() ? name_ : dated_name();
  if (chosen == last_session && name_ != last_session) {
    throw Error(ErrorKind::usage, fmt::format("'{}' is taken over by the next chat without a name; "
                                              "choose another",
                                              last_session));
  }
  if (chosen != name_ && need_folder().has(chosen)) {
    throw Error(ErrorKind::usage,
                fmt::format("there is a session '{}' already; choose another name, /load it, or "
                            "remove it: hyb sessions rm {}",
                            chosen, chosen));
  }
  write_own(chosen, saving, Extent::all);
  failure_.clear();
  return chosen;
}

SessionKeeper::Loaded SessionKeeper::load(const std::string& name) {
  check_session_name(name);
  const Version version = version_of(name);
  SavedSession saved = need_folder().read(name);
  Loaded loaded{.conversation = std::move(saved.record.conversation), .remark = {}};
  const bool has_same_ids =
      value_of(saved.fingerprint, "tokenizer") == value_of(origin_.fingerprint, "tokenizer");
  loaded.conversation = filtered(loaded.conversation, [&](const std::vector<TokenId>& tokens) {
    return has_same_ids && is_in(tokens, origin_.vocab);
  });
  if (!has_same_ids) {
    loaded.remark = fmt::format(
        "session '{}' was saved with {}, whose tokens may be others: its "
        "texts are encoded again",
        name, saved.record.model);
  } else if (saved.fingerprint != origin_.fingerprint) {
    loaded.remark =
        fmt::format("session '{}' was saved with {}: the conversation is prefilled again", name,
                    saved.record.model);
  }
  if (loaded.remark.empty()) restore(name, loaded);
  name_ = name;
  version_ = version;
  failure_.clear();
  return loaded;
}

void SessionKeeper::restore(const std::string& name, Loaded& loaded) {
  if (snapshot_io_ == nullptr) return;
  const SessionTransfer restored = need_folder().restore(name, origin_.fingerprint, *snapshot_io_);
  loaded.restored = restored.length;
  if (restored.refused.empty()) return;
  loaded.remark = fmt::format("{}; the conversation is prefilled again", restored.refused);
}

SessionKeeper::Loaded SessionKeeper::open(const std::string& name) {
  if (need_folder().has(name)) return load(name);
  name_ = name;
  version_ = {};
  return {};
}

void SessionKeeper::keep(const Saving& saving, Extent extent) {
  if (name_.empty() && !(saves_unnamed_ && folder_)) return;
  try {
    if (name_.empty()) {
      write(last_session, saving, extent);
    } else {
      write_own(name_, saving, extent);
    }
    failure_.clear();
  } catch (const Error& error) {
    if (std::exchange(failure_, error.what()) == failure_) return;
    log::warning(failure_ + "; this chat is not saved, and it is tried again after the next turn");
  }
}

void SessionKeeper::autosave(const Saving& saving) { keep(saving, Extent::turn); }

void SessionKeeper::close(const Saving& saving) { keep(saving, Extent::all); }

std::vector<std::string> SessionKeeper::names() const {
  try {
    return folder_ ? folder_->names() : std::vector<std::string>();
  } catch (const Error&) {
    return {};
  }
}

std::string SessionKeeper::list_text() const { return session_list_text(need_folder()); }

void SessionKeeper::forget_name() {
  name_.clear();
  version_ = {};
}

namespace {

std::string device_text(const kernels::Queue& queue) {
  const std::string device = name_of(queue.device());
  const bool is_card = queue.device() == kernels::Device::cuda;
  return is_card && queue.batch_invariant() ? device + " batch-invariant" : device;
}

}  // namespace

SessionOrigin session_origin(Session& session) {
  const ModelSource& source = session.source();
  const TypeOptions& types = session.settings().types;
  const Hash128 identity = model_identity(source, !types.random_weights);
  std::string weights = hex(identity);
  if (types.random_weights) weights += "-random-" + std::to_string(*types.random_weights);
  const models::Geometry& geometry = session.model().geometry;
  return {.model = source.name(),
          .fingerprint = {{"model", std::move(weights)},
                          // Of kernels and packing: another build may round differently.
                          {"hyb", version_text()},
                          {"tokenizer", hex(tokenizer_identity(source))},
                          {"activation_dtype", std::string(name_of(geometry.activation_dtype))},
                          {"quantize", std::string(word_of(words::quantize, types.quantize))},
                          {"kv_dtype", std::string(name_of(geometry.kv_dtype))},
                          {"state_dtype", std::string(name_of(geometry.state_dtype))},
                          // Pages lie differently on a card, and its answers differ.
                          {"device", device_text(session.queue())},
                          // Answers are the same to the bit within one level only.
                          {"isa", std::to_string(static_cast<int>(session.queue().isa()))}},
          .vocab = std::min(session.need_tokenizer().size(), session.model().plan.vocab)};
}

}  // namespace hyb::app
