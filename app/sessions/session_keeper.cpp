#include "app/sessions/session_keeper.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/machine/device.h"
#include "app/machine/version.h"
#include "app/model/digest.h"
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
                             bool saves_unnamed, SnapshotIo* snapshot_io, std::uint64_t bytes_max)
    : folder_(std::move(folder)),
      origin_(std::move(origin)),
      saves_unnamed_(saves_unnamed),
      snapshot_io_(snapshot_io),
      bytes_max_(bytes_max) {}

const SessionFolder& SessionKeeper::need_folder() const {
  if (folder_) return *folder_;
  throw Error(ErrorKind::usage, "sessions: there is no place for them; set HOME or XDG_DATA_HOME");
}

SessionRecord SessionKeeper::record(const Conversation& conversation) const {
  return {.model = origin_.model, .saved_s = std::time(nullptr), .conversation = conversation};
}

/// Goes on with the file of this name if it is the chat's and no other chat has written there
/// since; else begins one.
void SessionKeeper::open_file(const std::string& name, const Conversation& conversation) {
  bool is_known = is_own(name);
  if (name == name_ && !is_known) {
    throw Error(ErrorKind::runtime,
                fmt::format("session '{}' was changed by another chat and is left as it "
                            "is; /save OTHER keeps this one",
                            name));
  }
  if (!is_known && name == last_session && name == file_name_) {
    is_known = need_folder().bring_last_back(own_version());
  }
  if (name == file_name_ && is_known && conversation.turns() >= turns_) {
    if (!writer_) writer_.emplace(need_folder().path_of(name), content_);
    is_ours_ = true;
    return;
  }
  file_name_.clear();
  if (!is_known && name == last_session) need_folder().set_last_aside();
  const SessionRecord all = record(conversation);
  writer_ = need_folder().create(name, {.fingerprint = origin_.fingerprint, .record = all});
  file_name_ = name;
  is_ours_ = true;
  look_at_file();
  set_known(conversation);
}

std::map<std::string, std::string> SessionKeeper::head(const Conversation& conversation) const {
  std::map<std::string, std::string> head;
  const Json json = head_json(record(conversation));
  for (const auto& [name, value] : json.items()) {
    if (name != "saved") head[name] = to_text(value);
  }
  return head;
}

void SessionKeeper::set_known(const Conversation& conversation) {
  head_ = head(conversation);
  turns_ = shown_turns_ = conversation.turns();
  has_draft_ = false;
}

/// Returns what the file lacks of the conversation, empty where it has all.
Json SessionKeeper::changes(const Conversation& conversation) const {
  Json changes = Json::object();
  for (const auto& [name, text] : head(conversation)) {
    const auto known = head_.find(name);
    if (known == head_.end() || known->second != text) changes[name] = parse_json(text, name);
  }
  for (std::int32_t turn = turns_ + 1; turn <= conversation.turns(); ++turn) {
    changes["turns"].push_back(turn_json(conversation.turn(turn)));
  }
  return changes;
}

void SessionKeeper::add_changes(const Conversation& conversation) {
  Json more = changes(conversation);
  if (more.empty() && !has_draft_) return;
  const SessionRecord all = record(conversation);
  more["saved"] = all.saved_s;
  more["branches"] = head_json(all)["branches"];  // a draft has moved one
  writer_->add(to_text(more));
  set_known(conversation);
}

void SessionKeeper::write(const std::string& name, const Saving& saving) {
  if (writer_ && writer_->is_wasteful()) {
    const std::string known = std::exchange(file_name_, {});  // another file takes its place
    try {
      open_file(name, saving.conversation);
    } catch (const Error&) {
      file_name_ = known;  // which goes on to grow
    }
  }
  open_file(name, saving.conversation);
  add_changes(saving.conversation);
  if (snapshot_io_ != nullptr && saving.tokens) {
    BranchTokens tokens = saving.tokens();
    writer_->save({.snapshot_io = *snapshot_io_,
                   .sequence = std::move(tokens.sequence),
                   .before = tokens.before,
                   .before_min = tokens.before_min,
                   .bytes_max = bytes_max_});
  }
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

/// After writing, also where a part may be written: the file's version is this chat's own. What
/// another chat writes between a look at the name and that is not seen.
class SessionKeeper::Writing {
 public:
  explicit Writing(SessionKeeper& keeper) : keeper_(keeper) { keeper_.is_ours_ = false; }
  ~Writing() { keeper_.look_at_file(); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  SessionKeeper& keeper_;
};

/// The chat's file as this chat left it. If it could not be looked at after writing, it is looked
/// at again, and is what was written if it has as many bytes.
FileVersion SessionKeeper::own_version() const {
  if (version_ || !writer_) return version_.value_or(FileVersion());
  const auto now = version_of(writer_->descriptor());
  const bool is_as_written = now && now->bytes == static_cast<std::int64_t>(writer_->bytes());
  return is_as_written ? *now : FileVersion();
}

/// Says whether no other chat has written there since this one did.
bool SessionKeeper::is_own(const std::string& name) const {
  return own_version() == need_folder().version_of(name);
}

void SessionKeeper::look_at_file() {
  if (writer_ && is_ours_) version_ = version_of(writer_->descriptor());
}

std::string SessionKeeper::kept_as() const {
  if (!failure_.empty()) return {};
  return file_name_ == last_session ? need_folder().last_name_of(own_version()) : file_name_;
}

std::string SessionKeeper::save(const Saving& saving, const std::string& name) {
  const std::string chosen = !name.empty() ? name : !name_.empty() ? name_ : dated_name();
  if (chosen != name_) check_own_name(chosen);
  if (chosen != name_ && need_folder().has(chosen)) {
    throw Error(ErrorKind::usage,
                fmt::format("there is a session '{}' already; choose another name, /load it, or "
                            "remove it: hyb sessions rm {}",
                            chosen, chosen));
  }
  const std::optional<FileVersion> before = version_;
  const Writing writing(*this);
  try {
    write(chosen, saving);
  } catch (...) {
    if (chosen != name_) {
      writer_.reset();
      file_name_.clear();
      version_ = before;
    }
    throw;
  }
  name_ = chosen;
  failure_.clear();
  return chosen;
}

SessionKeeper::Loaded SessionKeeper::load(const std::string& name,
                                          std::optional<SavedSession> known) {
  check_session_name(name);
  const bool is_known = known && known->version == need_folder().version_of(name);
  SavedSession saved = is_known ? *std::move(known) : need_folder().read(name);
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
  forget_name();
  if (loaded.remark.empty()) {
    restore(name, saved, loaded);
    if (!saved.is_older) file_name_ = name;
    content_ = std::move(saved.content);
  }
  set_known(loaded.conversation);
  has_draft_ = saved.has_draft;
  turns_ -= has_draft_ ? 1 : 0;
  name_ = name;
  version_ = saved.version;
  failure_.clear();
  return loaded;
}

void SessionKeeper::restore(const std::string& name, const SavedSession& saved, Loaded& loaded) {
  if (snapshot_io_ == nullptr) return;
  const SessionTransfer restored = restore_session(need_folder().path_of(name), origin_.fingerprint,
                                                   *snapshot_io_, saved.content);
  loaded.restored = restored.length;
  if (restored.refused.empty()) return;
  loaded.remark = fmt::format("{}; the conversation is prefilled again", restored.refused);
}

SessionKeeper::Loaded SessionKeeper::open(const std::string& name,
                                          std::optional<SavedSession> known) {
  if (need_folder().has(name)) return load(name, std::move(known));
  check_own_name(name);
  forget_name();
  name_ = name;
  return {};
}

/// Another chat has saved under the name, or it was removed: this one goes on under a name that no
/// session has.
void SessionKeeper::leave_to_other() {
  std::string name = name_;
  for (int i = 2; need_folder().has(name) || is_taken_over(name); ++i) {
    name = fmt::format("{:.56}-{}", name_, i);
  }
  log::warning(fmt::format(
      "session '{}' was changed by another chat and is left as it is; this one is saved as '{}'",
      name_, name));
  forget_name();
  name_ = std::move(name);
}

/// Writes to the chat's file, if it is to have one.
template <typename Write>
void SessionKeeper::keep(Write write, std::string_view outlook) {
  if (name_.empty() && !(saves_unnamed_ && folder_)) return;
  const Writing writing(*this);
  try {
    if (!name_.empty() && !is_own(name_)) leave_to_other();
    if (!write(name_.empty() ? last_session : name_)) return;
    failure_.clear();
  } catch (const Error& error) {
    if (std::exchange(failure_, error.what()) == failure_) return;
    log::warning(fmt::format("{}; {}", failure_, outlook));
  }
}

void SessionKeeper::begin_turn(const Saving& saving, const Exchange& question) {
  pending_.clear();
  keep([&](const std::string& name) {
    Conversation then = saving.conversation;
    open_file(name, then);
    // Until the question is there the file stays where it is in the tree.
    Conversation before = then;
    const Json known = parse_json(head_.at("branches"), "branches");
    const auto here = known.find(before.branch());
    if (here != known.end()) before.go_to(here->get<std::int32_t>());
    add_changes(before);
    then.add(question);
    writer_->add_draft(to_text({{"turns", Json::array({turn_json(then.turn(then.turns()))})},
                                {"branches", head_json(record(then))["branches"]}}));
    has_draft_ = true;
    written_ = std::chrono::steady_clock::now();
    return true;
  });
}

void SessionKeeper::add_answer(std::string_view text) {
  pending_ += text;
  constexpr std::chrono::seconds pause(1);
  const auto now = std::chrono::steady_clock::now();
  if (!has_draft_ || now - written_ < pause) return;
  written_ = now;
  keep([&](const std::string& name) {
    if (!has_draft_ || !is_own(name)) return false;  // said afterwards
    is_ours_ = true;
    writer_->add_draft(to_text({{"more", pending_}}));
    pending_.clear();
    return true;
  });
}

void SessionKeeper::autosave(const Saving& saving) {
  keep([&](const std::string& name) {
    write(name, saving);
    return true;
  });
}

void SessionKeeper::close(const Saving& saving) {
  const bool has_turns = saving.conversation.turns() > shown_turns_;
  Json more = changes(saving.conversation);
  if (!has_turns) more.erase("turns");
  if (more.empty() || (file_name_.empty() && !has_turns)) return;
  failure_.clear();  // it is said again
  keep(
      [&](const std::string& name) {
        open_file(name, saving.conversation);
        add_changes(saving.conversation);
        return true;
      },
      "the last turns of this chat are not saved");
}

std::vector<std::string> SessionKeeper::names() const {
  try {
    return folder_ ? folder_->names() : std::vector<std::string>();
  } catch (const Error&) {
    return {};
  }
}

std::string SessionKeeper::list_text(int width) const {
  return session_list_text(need_folder(), width);
}

void SessionKeeper::forget_name() {
  name_.clear();
  version_ = FileVersion();
  file_name_.clear();
  writer_.reset();
  turns_ = shown_turns_ = 0;
  has_draft_ = false;
}

namespace {

/// A path that was given from this folder means the same in another one.
std::string model_name(const ModelSource& source) {
  std::error_code error;
  const bool is_path = source.has_files() && std::filesystem::exists(source.name(), error);
  return is_path ? std::filesystem::absolute(source.name(), error).string() : source.name();
}

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
  return {.model = model_name(source),
          .fingerprint = {{"model", std::move(weights)},
                          // The version stands for kernels and packing: another build may round
                          // differently.
                          {"hyb", version_text()},
                          {"tokenizer", hex(tokenizer_identity(source))},
                          {"activation_dtype", std::string(name_of(geometry.load.activation))},
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
