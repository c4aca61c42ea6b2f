#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/session_file.h"
#include "core/memory/snapshot_carrier.h"

namespace hyb {

/// What saving the memory of a session came to.
struct SessionSaved {
  std::int32_t snapshots = 0;
  std::int32_t length = 0;    ///< tokens of the deepest
  std::int32_t left_out = 0;  ///< snapshots that had no room in bytes_max
  std::uint64_t bytes = 0;    ///< of pages, slots and logits
};

/// What restoring it came to. A file that is missing, damaged or of another model is an expected
/// outcome: then nothing of it is used, and all has to be computed again.
struct SessionRestored {
  std::int32_t snapshots = 0;  ///< in the prefix tree now
  std::int32_t length = 0;     ///< tokens of the deepest of them
  std::int32_t left_out = 0;   ///< there was no room in the pool for
  std::string refused;         ///< why nothing was used, for a person; empty: it was
};

/// Writes a session with its memory: every snapshot in the prefix tree that one of the sequences
/// passes, the deepest first, with the pages and slots that it needs and the logits that are kept
/// with it; a page that several need once. Stops short of `bytes_max` bytes of these. Between
/// steps. Throws Error(runtime) when the file can't be written; what stood there before stays.
SessionSaved write_session(const std::filesystem::path& path, const SessionText& text,
                           SnapshotCarrier& carrier,
                           std::span<const std::vector<TokenId>> sequences,
                           std::uint64_t bytes_max = ~std::uint64_t{0});

/// Puts the snapshots of a session back into the prefix tree: a prompt that begins with their
/// tokens resumes from them. `here` is what the fingerprint of the file has to be equal to. Others
/// are evicted for them where the pool has no room. Between steps.
SessionRestored restore_session(const std::filesystem::path& path, const Fingerprint& here,
                                SnapshotCarrier& carrier);

}  // namespace hyb
