#pragma once

#include <optional>
#include <string>

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

}  // namespace hyb::jinja
