#include "core/text/jinja/json_values.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/text/jinja/fault.h"
#include "core/text/jinja/runtime.h"

namespace hyb::jinja {
namespace {

bool is_known_role(std::string_view role) {
  static constexpr std::array<std::string_view, 14> roles{
      "user",     "assistant",   "system",      "tool",         "developer",
      "function", "document",    "documents",   "model",        "ipython",
      "control",  "observation", "environment", "tool_response"};
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

std::string_view role_of(const Json& message) {
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return {};
  return role->get_ref<const std::string&>();
}

Value number_from_json(const Json& json) {
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_number_unsigned() &&
      json.get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw Fault("the integer " + json.dump() + " is over 64 bits");
  }
  return Value(json.get<std::int64_t>());
}

/// The parsed arguments if `json` is a string that holds a JSON object, else null.
Json parsed_arguments(const Json& json) {
  if (!json.is_string()) return nullptr;
  const auto& text = json.get_ref<const std::string&>();
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{') return nullptr;
  try {
    return parse_json(text, "arguments");
  } catch (const Error&) {
    return nullptr;  // what is no JSON stays the text it is
  }
}

class Converter {
 public:
  Converter(Runtime& runtime, TextSource source) : runtime_(runtime), source_(source) {}

  Value convert(const Json& json) {
    const Nested nested(runtime_.meter());
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value(json.get<bool>());
      case Json::value_t::number_integer:
      case Json::value_t::number_unsigned:
      case Json::value_t::number_float:
        return number_from_json(json);
      case Json::value_t::string:
        return text(json.get_ref<const std::string&>());
      case Json::value_t::array: {
        List& list = runtime_.new_list();
        for (const Json& item : json) runtime_.push(list, convert(item));
        return Value(Kind::list, &list);
      }
      case Json::value_t::object: {
        Dict& dict = runtime_.new_dict();
        for (const auto& [key, value] : json.items()) runtime_.set(dict, text(key), convert(value));
        return Value(Kind::dict, &dict);
      }
      default:
        return Value::none();
    }
  }

  Value text(std::string_view bytes) { return Value(runtime_.text(bytes, source_)); }

  /// {"function": {"name", "arguments"}}, or {"name", "arguments"}.
  Value convert_call(const Json& call) {
    if (!call.is_object()) return convert(call);
    Dict& dict = runtime_.new_dict();
    for (const auto& [key, value] : call.items()) {
      Value made;
      if (key == "function") {
        made = convert_call(value);
      } else if (const Json arguments = key == "arguments" ? parsed_arguments(value) : Json();
                 arguments.is_object()) {
        made = convert(arguments);
      } else {
        made = convert(value);
      }
      runtime_.set(dict, text(key), made);
    }
    return Value(Kind::dict, &dict);
  }

  Value convert_calls(const Json& calls) {
    if (!calls.is_array()) return convert(calls);
    List& list = runtime_.new_list();
    for (const Json& call : calls) runtime_.push(list, convert_call(call));
    return Value(Kind::list, &list);
  }

 private:
  Runtime& runtime_;
  TextSource source_;
};

/// The first of the names that a message gives its reasoning under, or null.
const Json* reasoning_of(const Json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found != message.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

Value message_from_json(Runtime& runtime, const Json& message) {
  const std::string_view role = role_of(message);
  const bool assistant = role == "assistant" || role == "model";
  Converter converter(runtime, assistant ? TextSource::assistant : TextSource::person);
  Converter trusted(runtime, TextSource::tmpl);
  Dict& dict = runtime.new_dict();
  const Json* reasoning = reasoning_of(message);
  if (reasoning != nullptr && !message.contains("thinking")) {
    runtime.set(dict, converter.text("thinking"), converter.convert(*reasoning));
  }
  for (const auto& [key, value] : message.items()) {
    Value made;
    if (key == "role" && is_known_role(role))
      made = trusted.convert(value);
    else if (key == "tool_calls")
      made = converter.convert_calls(value);
    else if (key == "function_call")
      made = converter.convert_call(value);
    else
      made = converter.convert(value);
    runtime.set(dict, converter.text(key), made);
  }
  if (reasoning != nullptr) {
    runtime.set(dict, converter.text("reasoning_content"), converter.convert(*reasoning));
  }
  return Value(Kind::dict, &dict);
}

}  // namespace

Value value_from_json(Runtime& runtime, const Json& json, TextSource source) {
  return Converter(runtime, source).convert(json);
}

Value messages_from_json(Runtime& runtime, const Json& messages) {
  if (!messages.is_array())
    throw Error(ErrorKind::usage, "messages: an array of objects is wanted");
  List& list = runtime.new_list();
  for (const Json& message : messages) {
    if (!message.is_object()) {
      throw Error(ErrorKind::usage, "messages: item " + std::to_string(list.items.size()) +
                                        " is not an object with role and content");
    }
    runtime.push(list, message_from_json(runtime, message));
  }
  return Value(Kind::list, &list);
}

TextSource source_of_variable(std::string_view name) {
  static constexpr std::array<std::string_view, 8> persons{
      "tools",        "documents", "available_tools", "functions",
      "custom_tools", "xml_tools", "builtin_tools",   "controls"};
  const bool person = std::find(persons.begin(), persons.end(), name) != persons.end();
  return person ? TextSource::person : TextSource::tmpl;
}

}  // namespace hyb::jinja
