#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/io/section_file.h"
#include "core/memory/pool/layout.h"

namespace hyb {

/// What has to be equal before bytes of one run are used by another: names and values, such as the
/// hash of the weights or the type of the recurrent state.
using Fingerprint = std::map<std::string, std::string>;

/// The first difference as "state_dtype is F32 here and BF16 there"; empty: there is none.
std::string difference(const Fingerprint& here, const Fingerprint& there);

Json to_json(const Fingerprint& fingerprint);

/// Throws Error(model) that starts with `source` for anything but an object of strings.
Fingerprint fingerprint_from(const Json& json, const std::string& source);

/// Counts of the sections that follow in a session file, and the layout that they are for.
struct SessionOutline {
  Fingerprint layout;
  /// The same without the bytes at the end of units that only guesses depend on. Written where
  /// there are some.
  std::optional<Fingerprint> answer_layout = {};
  std::size_t sequences = 0, snapshots = 0, units = 0;
  /// Snapshots after which logits follow: none in files that are written now.
  std::vector<std::uint32_t> logits = {};
};

/// What decides whether the bytes of a unit mean the same in two layouts: page size, kinds, sizes
/// of units as bytes_of(view) says. The number of superblocks does not.
Fingerprint layout_facts(const MemoryLayout& layout,
                         const std::function<std::size_t(ViewId)>& bytes_of);

Json to_json(const SessionOutline& outline);

/// Throws Error(model) that starts with `source` for anything else.
SessionOutline session_outline_from(const Json& json, const std::string& source);

inline constexpr SectionFormat session_format{.magic = {'H', 'Y', 'B', 'S', 'E', 'S', 'S', '\n'},
                                              .version = 1};

/// Kinds of sections of a session file, in the order of the file, except that logits come before
/// units. Numbers are never reused.
enum class SessionSection : std::uint32_t {
  fingerprint = 1,  ///< JSON: an object of strings
  app = 2,          ///< text
  outline = 3,      ///< JSON: what follows, and the layout that it is for; absent: nothing follows
  tokens = 4,       ///< i32 each; one section per sequence
  snapshot = 5,     ///< u32 each: sequence, length, precision, place, then its units
  unit = 6,         ///< bytes of a page or slot
  logits = 7,       ///< of a snapshot, whose number it has: read past, not written any more
};

void add_text(SectionWriter& writer, SessionSection kind, std::string_view text);
void add_numbers(SectionWriter& writer, SessionSection kind, std::uint32_t number,
                 std::span<const std::uint32_t> numbers);

/// The next section, which must be this one. These three throw Error(model) for what breaks the
/// format or is larger than allowed.
SectionHead expect_section(SectionReader& reader, SessionSection kind, std::uint32_t number);
std::string read_text(SectionReader& reader, SessionSection kind);
std::vector<std::uint32_t> read_numbers(SectionReader& reader, SessionSection kind,
                                        std::uint32_t number);

}  // namespace hyb
