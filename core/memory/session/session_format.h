#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/io/section_file.h"
#include "core/memory/pool/layout.h"
#include "core/memory/prefix/snapshot_io.h"

namespace hyb {

/// Lists what has to be equal before bytes of one run are used by another: names and values, such
/// as the hash of the weights or the type of the recurrent state.
using Fingerprint = std::map<std::string, std::string>;

/// The first difference as "state_dtype is F32 here and BF16 there"; empty: there is none.
std::string difference(const Fingerprint& here, const Fingerprint& there);

Json to_json(const Fingerprint& fingerprint);

/// Throws Error(model) that starts with `source` for anything but an object of strings.
Fingerprint fingerprint_from(const Json& json, const std::string& source);

/// Returns what decides whether the bytes of a unit mean the same in two layouts: page size, kinds,
/// sizes of units as bytes_of(view) says. The number of superblocks does not.
Fingerprint layout_facts(const MemoryLayout& layout,
                         const std::function<std::size_t(ViewId)>& bytes_of);

/// The layout that the memory in a session file is for.
struct SessionOutline {
  Fingerprint layout;
  /// The same without the bytes at the end of units that only guesses depend on. Written where
  /// there are some.
  std::optional<Fingerprint> answer_layout = {};
};

SessionOutline outline_of(const SnapshotIo& snapshot_io);
Json to_json(const SessionOutline& outline);

/// Throws Error(model) that starts with `source` for anything else.
SessionOutline session_outline_from(const Json& json, const std::string& source);

/// Limits a section that is no unit.
inline constexpr std::uint64_t section_bytes_max = std::uint64_t{64} << 20;

/// Limits all texts of a file together: a writer stops long before.
inline constexpr std::uint64_t text_bytes_max = 2 * section_bytes_max;

/// Most snapshots that a file has.
inline constexpr std::size_t snapshots_max = 2;

/// Version 1 was written as a whole every turn; its fingerprint and app are read, which come first.
inline constexpr SectionFormat session_format{.magic = {'H', 'Y', 'B', 'S', 'E', 'S', 'S', '\n'},
                                              .version = 2,
                                              .older_version = 1,
                                              .bytes_max = section_bytes_max};

/// Kinds of sections of a session file: fingerprint comes first. Numbers are never reused; version
/// 1 had 4, 5 and 7.
enum class SessionSection : std::uint32_t {
  fingerprint = 1,  ///< JSON: an object of strings
  app = 2,          ///< text
  outline = 3,      ///< JSON: the layout of the memory that follows; no earlier memory counts
  unit = 6,         ///< open: the bytes of a page or slot; numbered
  memory = 8,       ///< u32 each: see SessionContent; takes the place of the one before
  draft = 9,        ///< text until the next app section
};

/// Holds what a session file holds of the app's own, such as turns with their texts and token ids.
/// The texts are opaque here, usually JSON, at most 64 MiB each; their checksums detect damage, not
/// forgery.
struct SessionText {
  Fingerprint fingerprint;       ///< of the model that it was written with
  std::vector<std::string> app;  ///< in the order in which they were written
  std::size_t drafts = 0;        ///< of these, the last ones, that no other took the place of
  bool is_older = false;         ///< of a version to which nothing is added
  std::string damage = {};       ///< what ends the texts before the file does; empty: nothing
};

struct SavedSnapshot {
  std::int32_t length;  ///< of the sequence
  Precision precision;
  SnapshotPlace place;
};

/// View and page of a unit, and the length of the snapshot whose own it is; 0: a full page, which
/// all snapshots have in common.
using UnitKey = std::array<std::int32_t, 3>;

/// Lists those of a snapshot, in the order of units_of().
std::vector<UnitKey> unit_keys(const MemoryLayout& layout, std::int32_t length,
                               Precision precision);

/// A session file without the bytes of its units. The section `memory` has: count of tokens of the
/// sequence that stay, count of those that follow, these; count of snapshots; of each length,
/// precision and place; then of each unit its key, its number and its checksum (low, high).
struct SessionContent {
  struct Unit {
    std::uint32_t number = 0;
    std::uint64_t sum = 0;
  };
  struct Place {
    std::uint64_t begin, length;
  };
  SessionText text;
  std::uint64_t text_bytes = 0;  ///< of the file, without drafts
  std::string outline;           ///< empty: there is no memory
  std::vector<TokenId> sequence;
  std::vector<SavedSnapshot> snapshots;  ///< the best one first
  std::map<UnitKey, Unit> units;         ///< of these
  std::vector<Place> places;             ///< by number
  std::uint64_t end = 0;                 ///< of the last whole section
};

/// What a file with damage gives: an error, or the texts before it, if there are any.
enum class Damage : std::uint8_t { refused, cut };

/// Throws Error(model) for what breaks the format.
SessionContent read_content(SectionReader& reader, Damage damage = Damage::refused);

}  // namespace hyb
