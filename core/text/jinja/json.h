#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {

class Runtime;

/// The arguments of Python's json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent{};  ///< one level of it; absent: all in one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

/// json.dumps(value). Marks are kept; punctuation and numbers get the least trusted source in it.
/// Throws Fault for what JSON has no form for.
Text to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

class Runtime;

/// A value in which every string has the source. Throws Fault for integers over 64 bits.
Value value_from_json(Runtime& runtime, const Json& json, TextSource source);

/// Messages as templates expect them. What an assistant message holds is marked as assistant, all
/// else as person, but a role that templates know is theirs (tmpl): they print it inside control
/// text. Arguments of tool calls that are a JSON object as a string become that object. What is
/// named reasoning_content, thinking or reasoning is found under the first two. Throws Error(usage)
/// for anything but an array of objects.
Value messages_from_json(Runtime& runtime, const Json& messages);

/// Where the strings of a variable come from: tools and documents are the person's.
TextSource source_of_variable(std::string_view name);

}  // namespace hyb::jinja
