#include "app/request/messages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "app/request/text_input.h"
#include "core/base/error.h"

namespace hyb::app {

void check_messages(const Json& messages, const std::string& place) {
  const auto refuse = [&](const std::string& text) { throw Error(ErrorKind::usage, place + text); };
  if (!messages.is_array() || messages.empty()) refuse("messages: is a list of at least one");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const auto has = [&](const char* name) {
      const auto found = message.find(name);
      return found != message.end() && !found->is_null();
    };
    if (!message.is_object() || !has("role") || !message["role"].is_string()) {
      refuse(fmt::format("messages[{}] is not an object with a role in text", i));
    }
    // An answer may be empty, calls alone, or end in its thought.
    constexpr const char* instead[] = {"content",           "tool_calls", "function_call",
                                       "reasoning_content", "reasoning",  "thinking"};
    const bool is_empty_answer = message["role"] == "assistant" && message.contains("content");
    if (!is_empty_answer && std::none_of(std::begin(instead), std::end(instead), has)) {
      refuse(fmt::format("messages[{}] has no content", i));
    }
  }
}

Json read_messages(const std::string& file) {
  const std::string name = file == "-" ? "stdin" : file;
  const std::string text = read_text_of(file, input_bytes_max);
  Json body = parse_json(text, name, {.bytes_max = input_bytes_max, .depth_max = 256});
  if (body.is_array()) body = Json::object({{"messages", std::move(body)}});
  if (body.is_object()) {
    for (const char* field : {"stream", "stream_options"}) body.erase(field);  // flags decide that
  }
  const auto messages = body.find("messages");
  if (!body.is_object() || messages == body.end()) {
    throw Error(ErrorKind::usage, name + ": neither an array of messages nor an object with one");
  }
  check_messages(*messages, name + ": ");
  return body;
}

Json question_body(const std::string& system, const std::string& text) {
  check_utf8(text, "the prompt");
  check_utf8(system, "the system prompt");
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  return Json::object({{"messages", std::move(messages)}});
}

}  // namespace hyb::app
