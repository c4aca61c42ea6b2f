#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/io/section_file.h"
#include "core/memory/prefix/snapshot_io.h"
#include "core/memory/session/session_format.h"

namespace hyb {

/// The part of a session file that is about people: what the app wants to find again, such as the
/// turns with their texts and token ids. The text is opaque here, JSON by custom, at most 64 MiB;
/// its checksum says that it is what was written, not that it was written by a friend.
struct SessionText {
  Fingerprint fingerprint;  ///< of the model that it was written with
  std::string app;
};

/// What reading a session came to. A file that is missing, of another kind or another version, or
/// whose text is damaged is an expected outcome: nothing of it is used.
struct SessionReading {
  std::optional<SessionText> text;
  std::string refused;  ///< why there is no text, for a person; begins with the path
};

/// Writes a session file, readable by its owner only: the whole new one stands at the path, or what
/// stood there before. Throws Error(runtime) when it can't be written.
void write_session(const std::filesystem::path& path, const SessionText& text);

/// The same as the first sections of a file that goes on.
void add_session_text(SectionWriter& writer, const SessionText& text);

/// Reads the text, whatever became of the memory behind it. That it fits to the model at hand is
/// for the caller to ask: the text is good for any model, the memory for one.
SessionReading read_session(const std::filesystem::path& path);

/// What saving or restoring the memory of a session came to. A file that is missing, damaged or of
/// another model is an expected outcome of restoring: nothing of it is used.
struct SessionTransfer {
  std::int32_t snapshots = 0;  ///< in the file, or in the prefix tree, now
  std::int32_t length = 0;     ///< tokens of the deepest
  std::int32_t left_out = 0;   ///< snapshots that had no room in bytes_max, or in the pool
  std::uint64_t bytes = 0;     ///< of pages, slots and logits; saved only
  std::string refused;         ///< why nothing was restored, for a person; empty: it was
};

/// Writes a session with its memory: every snapshot in the prefix tree that one of the sequences
/// passes, the deepest first, with the pages and slots that it needs and the logits that are kept
/// with it; a page that several need once. Stops short of `bytes_max` bytes of these. Between
/// steps. Throws Error(runtime) when the file can't be written; what stood there before stays.
SessionTransfer write_session(const std::filesystem::path& path, const SessionText& text,
                              SnapshotCarrier& carrier,
                              std::span<const std::vector<TokenId>> sequences,
                              std::uint64_t bytes_max = ~std::uint64_t{0});

/// Puts the snapshots of a session back into the prefix tree: a prompt that begins with their
/// tokens resumes from them. `here` is what the fingerprint of the file has to be equal to. Others
/// are evicted for them where the pool has no room. Between steps.
SessionTransfer restore_session(const std::filesystem::path& path, const Fingerprint& here,
                                SnapshotCarrier& carrier);

}  // namespace hyb
