#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace hyb {

/// Objects keep the order of the file, as Python's dicts do: templates print them.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::size_t bytes_max = std::size_t{64} << 20;
  int depth_max = 64;
  /// Accepts the bare NaN, Infinity and -Infinity that Python's json module writes, as the strings
  /// "NaN", "Infinity" and "-Infinity".
  bool python_numbers = false;
};

/// Parses one complete JSON text. Refuses what RFC 8259 refuses, and also duplicate keys, invalid
/// UTF-8, and more depth or bytes than the limits allow.
/// Throws Error(model) that begins with `source` (a file name, "line 7", ...) and gives the place.
Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

/// The value of a key; nullptr where `object` is none, or the key is absent or null, which clients
/// and config files write for "not given".
const Json* member_of(const Json& object, std::string_view key);

/// Serialises like Python's json.dumps(ensure_ascii=False, separators=(",", ":")); invalid UTF-8
/// becomes U+FFFD.
std::string to_text(const Json& json);

}  // namespace hyb
