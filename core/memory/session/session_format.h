#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/io/section_file.h"
#include "core/memory/pool/layout.h"

namespace hyb {

/// What has to be equal before bytes of one run are used by another: names of facts and their
/// values, such as the hash of the weights or the type of the recurrent state.
using Fingerprint = std::map<std::string, std::string>;

/// The first difference as "state_dtype is F32 here and BF16 there"; empty: there is none.
std::string difference(const Fingerprint& here, const Fingerprint& there);

Json to_json(const Fingerprint& fingerprint);

/// Throws Error(model) that begins with `source` for what is no object of strings.
Fingerprint fingerprint_from(const Json& json, const std::string& source);

/// How many sections of each kind follow in a session file, and for which layout they are.
struct SessionOutline {
  Fingerprint layout;
  std::size_t sequences = 0, snapshots = 0, units = 0;
  std::vector<std::uint32_t> logits;  ///< snapshots that have theirs, ascending
};

/// What of a layout decides whether the bytes of a unit mean the same: page size, kinds, sizes of
/// units. The number of superblocks does not.
Fingerprint layout_facts(const MemoryLayout& layout);

Json to_json(const SessionOutline& outline);

/// Throws Error(model) that begins with `source` for what is none.
SessionOutline session_outline_from(const Json& json, const std::string& source);

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
