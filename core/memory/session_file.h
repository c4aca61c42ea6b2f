#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/io/section_file.h"
#include "core/memory/fingerprint.h"

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

}  // namespace hyb
