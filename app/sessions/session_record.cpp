#include "app/sessions/session_record.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/prompt.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr std::int64_t form = 1;

Json ids_json(const std::vector<TokenId>& tokens) {
  Json ids = Json::array();
  for (const TokenId token : tokens) ids.push_back(index(token));
  return ids;
}

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
    if (!member(name).is_string()) fail(std::string("'") + name + "' is no text");
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
    if (!is_good) fail("'" + name + "' is no number in range");
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
  conversation.add_behind(static_cast<std::int32_t>(turn.number("behind", conversation.turns())),
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

std::string record_text(const SessionRecord& record) {
  const Conversation& conversation = record.conversation;
  Json turns = Json::array();
  for (std::int32_t turn = 1; turn <= conversation.turns(); ++turn) {
    turns.push_back(turn_json(conversation.turn(turn)));
  }
  Json branches = Json::object();
  for (const auto& [name, turn] : conversation.branches()) branches[name] = turn;
  return to_text({{"chat", form},
                  {"model", record.model},
                  {"saved", record.saved_s},
                  {"system", conversation.system()},
                  {"branch", conversation.branch()},
                  {"branches", std::move(branches)},
                  {"turns", std::move(turns)}});
}

SessionRecord parse_record(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  const Reading reading(json, source);
  if (reading.number("chat", Reading::int32_max) != form) {
    reading.fail("was saved by another version of hyb");
  }
  SessionRecord record{.model = reading.text("model"),
                       .saved_s = reading.number("saved", std::numeric_limits<std::int64_t>::max()),
                       .conversation = {}};
  record.conversation.set_system(reading.text("system"));
  const Json& turns = reading.member("turns");
  if (!turns.is_array()) reading.fail("'turns' is no list");
  for (const Json& turn : turns) add_turn(record.conversation, turn, source);
  read_branches(record.conversation, reading);
  return record;
}

}  // namespace hyb::app
