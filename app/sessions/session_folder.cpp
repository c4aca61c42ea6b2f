#include "app/sessions/session_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "app/ui/table.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

constexpr std::int64_t folder_form = 1;

Json ids_json(const std::vector<TokenId>& tokens) {
  Json ids = Json::array();
  for (const TokenId token : tokens) ids.push_back(index(token));
  return ids;
}

/// Members of an object, by type, or Error(model).
class Reading {
 public:
  Reading(const Json& object, const std::string& source) : object_(object), source_(source) {
    if (!object.is_object()) fail("holds something else than a chat");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::model, source_ + ": " + what);
  }

  bool has(const char* name) const { return object_.contains(name); }

  const Json& member(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) fail(std::string("lacks '") + name + "'");
    return *found;
  }

  std::string text(const char* name) const {
    if (!member(name).is_string()) fail(std::string("'") + name + "' is not text");
    return member(name).get<std::string>();
  }

  bool flag(const char* name) const {
    if (!member(name).is_boolean()) fail(std::string("'") + name + "' is neither true nor false");
    return member(name).get<bool>();
  }

  std::int64_t number(const char* name, std::int64_t max) const {
    return number(member(name), name, max);
  }

  std::vector<TokenId> ids(const char* name) const {
    if (!member(name).is_array()) fail(std::string("'") + name + "' is no list");
    std::vector<TokenId> tokens;
    for (const Json& id : member(name)) {
      tokens.push_back(TokenId{static_cast<std::int32_t>(number(id, name, int32_max))});
    }
    return tokens;
  }

  std::int64_t number(const Json& value, const std::string& name, std::int64_t max) const {
    const bool is_good =
        value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(max);
    if (!is_good) fail("'" + name + "' is not a number in range");
    return value.get<std::int64_t>();
  }

  static constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();

 private:
  const Json& object_;
  const std::string& source_;
};

void add_turn(Conversation& conversation, const Json& json, const std::string& source) {
  const Reading turn(json, source);
  Exchange exchange{.message = turn.text("message"),
                    .answer = {.text = {}, .tokens = turn.ids("answer_ids")},
                    .answer_text = turn.text("answer"),
                    .was_interrupted = turn.flag("interrupted"),
                    .lead = turn.ids("lead_ids"),
                    .tokens = static_cast<std::int32_t>(turn.number("tokens", Reading::int32_max))};
  if (turn.has("opening")) exchange.opening = turn.text("opening");
  if (turn.has("think")) exchange.think = turn.flag("think");
  if (!exchange.answer.tokens.empty()) exchange.answer.text = exchange.answer_text;
  conversation.add_after(static_cast<std::int32_t>(turn.number("behind", conversation.turns())),
                         std::move(exchange));
}

void read_branches(Conversation& conversation, const Reading& reading) {
  const Json& json = reading.member("branches");
  if (!json.is_object()) reading.fail("'branches' is no object");
  std::map<std::string, std::int32_t, std::less<>> branches;
  for (const auto& [name, turn] : json.items()) {
    branches[name] = static_cast<std::int32_t>(reading.number(turn, name, conversation.turns()));
  }
  std::string here = reading.text("branch");
  if (!branches.contains(here)) reading.fail("'branch' is none of the branches");
  conversation.set_branches(std::move(branches), std::move(here));
}

}  // namespace

Json turn_json(const Conversation::Turn& turn) {
  const Exchange& exchange = turn.exchange;
  Json json = {{"behind", turn.parent},
               {"message", exchange.message},
               {"answer", exchange.answer_text},
               {"answer_ids", ids_json(exchange.answer.tokens)},
               {"lead_ids", ids_json(exchange.lead)},
               {"interrupted", exchange.was_interrupted},
               {"tokens", exchange.tokens}};
  // Named only where there is something to say: chats saved before this was known have neither.
  if (!exchange.opening.empty()) json["opening"] = exchange.opening;
  if (exchange.think) json["think"] = *exchange.think;
  return json;
}

Json head_json(const SessionRecord& record) {
  const Conversation& conversation = record.conversation;
  Json branches = Json::object();
  for (const auto& [name, turn] : conversation.branches()) branches[name] = turn;
  return {{"chat", folder_form},
          {"model", record.model},
          {"saved", record.saved_s},
          {"system", conversation.system()},
          {"branch", conversation.branch()},
          {"branches", std::move(branches)}};
}

std::string record_text(const SessionRecord& record) {
  const Conversation& conversation = record.conversation;
  Json json = head_json(record);
  Json& turns = json["turns"] = Json::array();
  for (std::int32_t turn = 1; turn <= conversation.turns(); ++turn) {
    turns.push_back(turn_json(conversation.turn(turn)));
  }
  return to_text(json);
}

namespace {

/// Applies the changes that later texts make to the first one.
void apply(Json& json, const std::string& text, const std::string& source) {
  const Json change = parse_json(text, source);
  Reading(change, source);
  for (const auto& [name, value] : change.items()) {
    Json& turns = json["turns"];
    if (name == "turns" && value.is_array() && turns.is_array()) {
      turns.insert(turns.end(), value.begin(), value.end());
    } else if (name == "more" && value.is_string() && turns.is_array() && !turns.empty() &&
               turns.back().is_object() && turns.back()["answer"].is_string()) {
      turns.back()["answer"].get_ref<std::string&>() += value.get<std::string>();
    } else {
      json[name] = value;
    }
  }
}

}  // namespace

SessionRecord parse_record(const std::vector<std::string>& texts, const std::string& source) {
  Json json = parse_json(texts.empty() ? "" : texts.front(), source);
  const Reading reading(json, source);
  for (std::size_t i = 1; i < texts.size(); ++i) apply(json, texts[i], source);
  if (reading.number("chat", Reading::int32_max) != folder_form) {
    reading.fail("was saved by another version of hyb");
  }
  SessionRecord record{
      .model = reading.text("model"),
      .saved_s = reading.number("saved", std::numeric_limits<std::int64_t>::max())};
  record.conversation.set_system(reading.text("system"));
  const Json& turns = reading.member("turns");
  if (!turns.is_array()) reading.fail("'turns' is no list");
  for (const Json& turn : turns) add_turn(record.conversation, turn, source);
  read_branches(record.conversation, reading);
  return record;
}

namespace {

constexpr std::string_view ending = ".session";
constexpr std::size_t name_bytes_max = 64;

bool is_plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

bool is_session_name(std::string_view name) {
  const auto may_stand = [](char letter) {
    return is_plain(letter) || letter == '-' || letter == '_' || letter == '.';
  };
  return !name.empty() && name.size() <= name_bytes_max && is_plain(name.front()) &&
         std::all_of(name.begin(), name.end(), may_stand);
}

std::string name_of_age(int age) {
  return age == 0 ? last_session : fmt::format("{}-{}", last_session, age);
}

}  // namespace

bool is_taken_over(std::string_view name) {
  for (int age = 0; age < last_sessions; ++age) {
    if (name == name_of_age(age)) return true;
  }
  return false;
}

void check_own_name(const std::string& name) {
  if (!is_taken_over(name)) return;
  throw Error(ErrorKind::usage,
              fmt::format("'{}' is taken over by chats without a name; choose another", name));
}

void check_session_name(const std::string& name) {
  if (is_session_name(name)) return;
  throw Error(ErrorKind::usage,
              fmt::format("session '{}': a name is 1 to {} letters, digits, '-', '_' and '.', and "
                          "begins with a letter or digit",
                          name.substr(0, name_bytes_max), name_bytes_max));
}

namespace {

[[noreturn]] void fail_to_look(const std::filesystem::path& path, std::error_code error) {
  throw Error(ErrorKind::runtime, path.string() + ": can't be looked at: " + error.message());
}

}  // namespace

std::filesystem::path SessionFolder::path_of(const std::string& name) const {
  check_session_name(name);
  return folder_ / (name + std::string(ending));
}

bool SessionFolder::has(const std::string& name) const {
  const std::filesystem::path path = path_of(name);
  std::error_code error;
  const auto type = std::filesystem::symlink_status(path, error).type();
  if (type == std::filesystem::file_type::none) fail_to_look(path, error);
  return type != std::filesystem::file_type::not_found;
}

namespace {

FileVersion version_from(const struct stat& about) {
  return {.file = about.st_ino,
          .changed_ns = about.st_mtim.tv_sec * std::int64_t{1'000'000'000} + about.st_mtim.tv_nsec,
          .bytes = about.st_size};
}

}  // namespace

FileVersion SessionFolder::version_of(const std::string& name) const {
  struct stat about {};
  const std::filesystem::path path = path_of(name);
  if (::stat(path.c_str(), &about) != 0) {
    if (errno == ENOENT) return {};
    fail_to_look(path, std::error_code(errno, std::generic_category()));
  }
  return version_from(about);
}

std::optional<FileVersion> version_of(int descriptor) {
  struct stat about {};
  if (::fstat(descriptor, &about) != 0) return std::nullopt;
  return version_from(about);
}

std::vector<std::string> SessionFolder::names() const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder_, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string file = entries->path().filename().string();
    if (!file.ends_with(ending)) continue;
    std::string name = file.substr(0, file.size() - ending.size());
    if (is_session_name(name)) names.push_back(std::move(name));
  }
  if (error && error != std::errc::no_such_file_or_directory) fail_to_look(folder_, error);
  std::sort(names.begin(), names.end());
  return names;
}

void SessionFolder::need(const std::string& name) const {
  if (has(name)) return;
  const std::vector<std::string> all = names();
  const std::string_view nearest = nearest_name(name, all);
  throw Error(ErrorKind::usage,
              fmt::format("there is no session '{}'; {}", name,
                          all.empty()       ? "none is saved yet; hyb chat --session NAME saves one"
                          : nearest.empty() ? "hyb sessions lists them"
                                            : fmt::format("the nearest is '{}'", nearest)));
}

SavedSession SessionFolder::read(const std::string& name) const {
  const std::filesystem::path path = path_of(name);
  need(name);
  try {
    const FileVersion version = version_of(name);
    SessionContent content = open_session(path);
    const SessionText& text = content.text;
    SavedSession saved = {.fingerprint = text.fingerprint,
                          .record = parse_record(text.app, path.string()),
                          .has_draft = text.drafts > 0,
                          .is_older = text.is_older,
                          .version = version};
    content.text.app.clear();
    saved.content = std::move(content);
    return saved;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    throw Error(ErrorKind::model,
                fmt::format("{}; hyb sessions export {} gives the turns before it, hyb sessions rm "
                            "{} removes it",
                            error.what(), name, name));
  }
}

SessionRecord SessionFolder::read_record(const std::string& name) const {
  need(name);
  const std::filesystem::path path = path_of(name);
  const SessionText text = open_session(path, Damage::cut).text;
  SessionRecord record = parse_record(text.app, path.string());
  if (!text.damage.empty()) {
    log::warning(fmt::format("{}; {} before it can be read", text.damage,
                             counted(record.conversation.turns(), "turn")));
  }
  return record;
}

SessionWriter SessionFolder::create(const std::string& name, const SavedSession& session) const {
  const std::filesystem::path path = path_of(name);
  std::error_code error;
  if (std::filesystem::create_directories(folder_, error)) {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    throw Error(ErrorKind::runtime,
                folder_.string() + ": the folder can't be made: " + error.message());
  }
  return SessionWriter::create(
      path, {.fingerprint = session.fingerprint, .app = {record_text(session.record)}});
}

void SessionFolder::remove(const std::string& name) const {
  const std::filesystem::path path = path_of(name);
  need(name);
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) {
    throw Error(ErrorKind::runtime, path.string() + ": can't be removed: " + error.message());
  }
}

void SessionFolder::rename(const std::string& name, const std::string& to) const {
  check_session_name(to);
  need(name);
  if (has(to)) throw Error(ErrorKind::usage, "there is a session '" + to + "' already");
  std::error_code error;
  std::filesystem::rename(path_of(name), path_of(to), error);
  if (error) {
    throw Error(ErrorKind::runtime,
                path_of(name).string() + ": can't be renamed: " + error.message());
  }
}

/// What can't be read counts as one, too, and is not overwritten.
bool SessionFolder::last_has_answer() const {
  if (!has(last_session)) return false;
  try {
    const Conversation conversation = read(last_session).record.conversation;
    std::int32_t turn = conversation.turns();
    while (turn > 0 && is_unanswered(conversation.turn(turn).exchange)) --turn;
    return turn > 0;
  } catch (const Error&) {
    return true;
  }
}

/// All that are younger than `age`, whose name is free.
void SessionFolder::make_older(int age) const {
  for (; age > 0; --age) {
    if (has(name_of_age(age - 1))) rename(name_of_age(age - 1), name_of_age(age));
  }
}

void SessionFolder::set_last_aside() const {
  if (!last_has_answer()) return;
  int age = 1;
  while (age < last_sessions - 1 && has(name_of_age(age))) ++age;
  if (has(name_of_age(age))) remove(name_of_age(age));
  make_older(age);
}

int SessionFolder::age_of(const FileVersion& file) const {
  int age = 0;
  while (age < last_sessions && version_of(name_of_age(age)) != file) ++age;
  return file == FileVersion() ? last_sessions : age;
}

std::string SessionFolder::last_name_of(const FileVersion& file) const {
  const int age = age_of(file);
  return age < last_sessions ? name_of_age(age) : "";
}

bool SessionFolder::bring_last_back(const FileVersion& file) const {
  const int age = age_of(file);
  if (age == last_sessions) return false;
  const std::string on_the_way = fmt::format("{}-again", last_session);
  rename(name_of_age(age), on_the_way);
  if (last_has_answer()) {
    make_older(age);
  } else if (has(last_session)) {
    remove(last_session);
  }
  rename(on_the_way, last_session);
  return true;
}

namespace {

std::string time_text(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  if (::localtime_r(&time, &local) == nullptr) return "?";
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &local)};
}

std::uintmax_t size_of(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

std::int32_t tokens_here(const Conversation& conversation) {
  const std::int32_t here = conversation.here();
  return here == 0 ? 0 : conversation.turn(here).exchange.tokens;
}

/// Calls use(name, bytes, session) or damaged(name, bytes, why) for each.
template <typename Use, typename Damaged>
void for_each(const SessionFolder& folder, Use use, Damaged damaged) {
  for (const std::string& name : folder.names()) {
    const std::uintmax_t bytes = size_of(folder.path_of(name));
    try {
      use(name, bytes, folder.read(name).record);
    } catch (const Error& error) {
      damaged(name, bytes, error.what());
    }
  }
}

}  // namespace

std::string session_list_text(const SessionFolder& folder, int width) {
  Table table{.columns = columns_of("session|>turns|>tokens|>size|saved|model")};
  for_each(
      folder,
      [&](const std::string& name, std::uintmax_t bytes, const SessionRecord& record) {
        table.rows.push_back({name, fmt::format("{}", record.conversation.turns()),
                              fmt::format("{}", tokens_here(record.conversation)),
                              bytes_text(bytes), time_text(record.saved_s),
                              sanitized_line(record.model)});
      },
      [&](const std::string& name, std::uintmax_t bytes, const std::string&) {
        table.rows.push_back({name, "", "", bytes_text(bytes), "", "can't be read"});
      });
  return table.rows.empty() ? "no sessions\n" : fitted_text(table, width);
}

Json session_list_json(const SessionFolder& folder) {
  Json list = Json::array();
  for_each(
      folder,
      [&](const std::string& name, std::uintmax_t bytes, const SessionRecord& record) {
        list.push_back({{"name", name},
                        {"turns", record.conversation.turns()},
                        {"tokens", tokens_here(record.conversation)},
                        {"bytes", bytes},
                        {"saved", record.saved_s},
                        {"model", record.model}});
      },
      [&](const std::string& name, std::uintmax_t bytes, const std::string& why) {
        list.push_back({{"name", name}, {"bytes", bytes}, {"error", why}});
      });
  return list;
}

namespace {

/// Each with its role, in order.
std::vector<std::pair<std::string, std::string>> said(const Conversation& conversation) {
  std::vector<std::pair<std::string, std::string>> all;
  if (!conversation.system().empty()) all.emplace_back("system", conversation.system());
  for (const std::int32_t turn : conversation.path(conversation.here())) {
    const Exchange& exchange = conversation.turn(turn).exchange;
    all.emplace_back("user", exchange.message);
    all.emplace_back(exchange.was_interrupted ? "assistant (stopped)" : "assistant",
                     exchange.answer_text);
  }
  for (auto& [role, text] : all) {
    if (!text.ends_with('\n')) text += '\n';
  }
  return all;
}

constexpr std::string_view markdown_title = "<!-- written by hyb chat -->\n# Chat\n";

}  // namespace

std::string transcript(const Conversation& conversation) {
  std::string all;
  for (const auto& [role, text] : said(conversation)) {
    all.append(all.empty() ? "" : "\n").append(role).append(": ").append(text);
  }
  return all;
}

std::string transcript_markdown(const Conversation& conversation) {
  std::string all(markdown_title);
  for (const auto& [role, text] : said(conversation)) {
    all.append("\n## ").append(role).append("\n\n").append(text);
  }
  return all;
}

void write_transcript(const Conversation& conversation, const std::filesystem::path& path) {
  std::error_code failed;  // then writing fails, too, and says why
  const bool is_ours = !std::filesystem::exists(path, failed) ||
                       read_text_file(path, std::size_t{64} << 20).starts_with(markdown_title);
  if (!is_ours) {
    throw Error(ErrorKind::usage, path.string() + ": is there and is no chat; give another name");
  }
  write_atomically(path, transcript_markdown(conversation), FileAccess::umask);
}

Json transcript_json(const SessionRecord& record) {
  Json messages = record.conversation.messages(record.conversation.here(), "");
  messages.erase(messages.size() - 1);  // the message that is to be answered
  return {{"model", record.model}, {"messages", std::move(messages)}};
}

bool is_unanswered(const Exchange& exchange) {
  return exchange.was_interrupted && exchange.answer_text.empty();
}

}  // namespace hyb::app
