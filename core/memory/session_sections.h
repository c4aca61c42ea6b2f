#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/section_file.h"

namespace hyb {

inline constexpr SectionFormat session_format{.magic = {'H', 'Y', 'B', 'S', 'E', 'S', 'S', '\n'},
                                              .version = 1};

/// Kinds of sections of a session file, in the order of the file, but that
/// logits stand before units. Numbers are never used again.
enum class SessionSection : std::uint32_t {
  fingerprint = 1,  ///< JSON: an object of strings
  app = 2,          ///< text
  outline = 3,      ///< JSON: what follows, and the layout that it is for; absent: nothing follows
  tokens = 4,       ///< i32 each; one section per sequence
  snapshot = 5,     ///< u32 each: sequence, length, precision, place, then its units
  unit = 6,         ///< bytes of a page or slot
  logits = 7,       ///< f32 each: of the token behind a snapshot, whose number it has
};

void add_text(SectionWriter& writer, SessionSection kind, std::string_view text);
void add_numbers(SectionWriter& writer, SessionSection kind, std::uint32_t number,
                 std::span<const std::uint32_t> numbers);

/// The next section, which must be this one. Throws Error(model), as the rest does for what breaks
/// the format or is larger than it may be.
SectionHead expect_section(SectionReader& reader, SessionSection kind, std::uint32_t number);
std::string read_text(SectionReader& reader, SessionSection kind);
std::vector<std::uint32_t> read_numbers(SectionReader& reader, SessionSection kind,
                                        std::uint32_t number);

}  // namespace hyb
