#include "app/base/texts.h"

#include <iterator>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb::app {

std::string bytes_text(std::size_t bytes) {
  constexpr const char* names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(names)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, names[unit]);
}

std::string parameters_text(std::int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return parameters < 1'000'000'000 ? fmt::format("{:.2f} M", count / 1e6)
                                    : fmt::format("{:.2f} B", count / 1e9);
}

void check_utf8(std::string_view text, std::string_view what) {
  if (is_well_formed(text)) return;
  std::size_t at = 0;
  while (true) {
    const Utf8Unit unit = read_utf8(text, at);
    if (unit.kind != Utf8Unit::Kind::character) break;
    at += unit.bytes;
  }
  throw Error(ErrorKind::usage, fmt::format("{} is not valid UTF-8 at byte {}", what, at));
}

}  // namespace hyb::app
