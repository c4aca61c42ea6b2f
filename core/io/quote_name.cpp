#include "core/io/quote_name.h"

#include <fmt/format.h>

#include <cstddef>

namespace hyb {
namespace {

constexpr std::size_t bytes_max = 200;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; }

/// C1 controls are U+0080 to U+009F: the bytes C2 80 to C2 9F.
bool starts_c1_control(std::string_view rest) {
  return rest.size() >= 2 && rest[0] == '\xC2' && static_cast<unsigned char>(rest[1]) >= 0x80 &&
         static_cast<unsigned char>(rest[1]) <= 0x9F;
}

}  // namespace

std::string quote_name(std::string_view name) {
  const bool cut = name.size() > bytes_max;
  if (cut) {
    std::size_t end = bytes_max;
    while (end > 0 && is_continuation(name[end])) --end;
    name = name.substr(0, end);
  }
  std::string out = "\"";
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    if (starts_c1_control(name.substr(i))) {
      out += fmt::format("\\x{:02x}\\x{:02x}", byte, static_cast<unsigned char>(name[i + 1]));
      ++i;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += name[i];
    }
  }
  out += cut ? "\"..." : "\"";
  return out;
}

}  // namespace hyb
