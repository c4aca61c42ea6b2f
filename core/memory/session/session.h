#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/memory/prefix/snapshot_io.h"
#include "core/memory/session/session_format.h"

namespace hyb {

/// Reads a session but for the bytes of its units, which may be damaged. The caller checks
/// whether it fits the model at hand: the text is usable with any model, the memory with one.
/// Throws Error(model) that starts with the path for a file that is missing, of another kind or
/// version, or damaged in its text; Damage::cut gives the texts before it, to be read only.
SessionContent open_session(const std::filesystem::path& path, Damage damage = Damage::refused);

/// Its text alone.
inline SessionText read_session(const std::filesystem::path& path) {
  return open_session(path).text;
}

/// The result of saving or restoring the memory of a session. A file that is missing, damaged or of
/// another model is an expected outcome of restoring: nothing of it is used.
struct SessionTransfer {
  std::int32_t snapshots = 0;  ///< in the file, or in the prefix tree, now
  std::int32_t length = 0;     ///< tokens of the deepest
  std::int32_t left_out = 0;   ///< snapshots that had no room in bytes_max, or in the pool
  std::uint64_t bytes = 0;     ///< of pages and slots; saved only
  std::string refused;         ///< why nothing was restored, as a message; empty: it was
};

/// Puts the snapshots of a session back into the prefix tree: a prompt that starts with their
/// tokens resumes from them. The fingerprint of the file has to equal `here`. Others are evicted
/// for them where the pool has no room. A snapshot with a damaged unit is left out, as that whose
/// place was being taken by another when the writer was killed. `content` is the file's, as it is
/// or was; none: it is read. Between steps.
SessionTransfer restore_session(const std::filesystem::path& path, const Fingerprint& here,
                                SnapshotIo& snapshot_io,
                                const std::optional<SessionContent>& content = {});

}  // namespace hyb
