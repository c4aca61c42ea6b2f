#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/io/section_file.h"
#include "core/memory/prefix/snapshot_io.h"
#include "core/memory/session/session_format.h"

namespace hyb {

/// The part of a session file that is not memory: the app's own, such as turns with their texts and
/// token ids. The text is opaque here, usually JSON, at most 64 MiB; its checksum detects damage,
/// not forgery.
struct SessionText {
  Fingerprint fingerprint;  ///< of the model that it was written with
  std::string app;
};

/// Writes a session file atomically, readable by its owner only. Throws Error(runtime) when it
/// can't be written.
void write_session(const std::filesystem::path& path, const SessionText& text);

/// The same as the first sections of a longer file.
void add_session_text(SectionWriter& writer, const SessionText& text);

/// Reads the text, even where the memory after it is damaged. The caller checks whether it fits the
/// model at hand: the text is usable with any model, the memory with one. Throws Error(model) that
/// starts with the path for a file that is missing, of another kind or version, or damaged in its
/// text.
SessionText read_session(const std::filesystem::path& path);

/// The result of saving or restoring the memory of a session. A file that is missing, damaged or of
/// another model is an expected outcome of restoring: nothing of it is used.
struct SessionTransfer {
  std::int32_t snapshots = 0;  ///< in the file, or in the prefix tree, now
  std::int32_t length = 0;     ///< tokens of the deepest
  std::int32_t left_out = 0;   ///< snapshots that had no room in bytes_max, or in the pool
  std::uint64_t bytes = 0;     ///< of pages and slots; saved only
  std::string refused;         ///< why nothing was restored, as a message; empty: it was
};

/// Writes a session with its memory: every snapshot in the prefix tree on the path of one of the
/// sequences, the deepest first, with its pages and slots; a page that several need
/// once. Writes at most `bytes_max` bytes of these. Between steps. Throws Error(runtime) when the
/// file can't be written; the old file then stays.
SessionTransfer write_session(const std::filesystem::path& path, const SessionText& text,
                              SnapshotIo& snapshot_io,
                              std::span<const std::vector<TokenId>> sequences,
                              std::uint64_t bytes_max = ~std::uint64_t{0});

/// Puts the snapshots of a session back into the prefix tree: a prompt that starts with their
/// tokens resumes from them. The fingerprint of the file has to equal `here`. Others are evicted
/// for them where the pool has no room. Between steps.
SessionTransfer restore_session(const std::filesystem::path& path, const Fingerprint& here,
                                SnapshotIo& snapshot_io);

}  // namespace hyb
