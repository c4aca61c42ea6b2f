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
  std::optional<std::string> indent{};  ///< of one level; absent: a single line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

/// json.dumps(value). Sources are kept; punctuation and numbers get the least trusted source in the
/// value. Throws Fault for values that JSON cannot represent.
Text to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

/// A value whose strings all have the given source. Throws Fault for integers over 64 bits.
Value value_from_json(Runtime& runtime, const Json& json, TextSource source);

/// Messages in the form that templates expect. The content of an assistant message is marked as
/// assistant, everything else as person, except standard role names (tmpl), which templates print
/// inside control text. A member reasoning_content, thinking or reasoning is available under the
/// first two names. Throws Error(usage) for anything but an array of objects.
Value messages_from_json(Runtime& runtime, const Json& messages);

/// The source of a variable's strings: person for tools and documents, else tmpl.
TextSource source_of_variable(std::string_view name);

}  // namespace hyb::jinja
