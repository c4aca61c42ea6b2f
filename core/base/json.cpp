#include "core/base/json.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json_builder.h"

namespace hyb {
namespace {

[[noreturn]] void fail(std::string_view source, const std::string& text) {
  throw Error(ErrorKind::model, std::string(source) + ": " + text);
}

/// Puts quotes around bare NaN, Infinity and -Infinity outside strings.
std::string quote_python_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    if (in_string) {
      if (text[i] == '\\' && i + 1 < text.size())
        out += text[i++];
      else if (text[i] == '"')
        in_string = false;
      out += text[i++];
      continue;
    }
    std::string_view found;
    for (std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (text.substr(i, word.size()) == word) found = word;
    }
    if (!found.empty()) {
      out.append("\"").append(found).append("\"");
      i += found.size();
      continue;
    }
    in_string = text[i] == '"';
    out += text[i++];
  }
  return out;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    fail(source, "JSON of " + std::to_string(text.size()) + " bytes, at most " +
                     std::to_string(limits.bytes_max) + " are read");
  }
  // The parser below takes a NUL byte for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail(source, "not valid JSON at byte " + std::to_string(nul) + " (a NUL byte)");
  }
  std::string quoted;
  if (limits.python_numbers) {
    quoted = quote_python_numbers(text);
    text = quoted;
  }
  JsonBuilder builder(source, limits.depth_max);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

const Json* member_of(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hyb
