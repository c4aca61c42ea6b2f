#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "app/conversation.h"
#include "core/base/json.h"
#include "core/memory/session/session.h"

namespace hyb::app {

/// A saved chat: what the app's section of a session file holds.
struct SessionRecord {
  std::string model;         ///< as the user named it; for people
  std::int64_t saved_s = 0;  ///< since 1970
  Conversation conversation = {};
};

/// As JSON: every turn with its texts and ids, the branches, the system prompt.
std::string record_text(const SessionRecord& record);

/// Reads it back. The text is untrusted: whatever breaks the form is Error(model) that begins with
/// `source`. Ids are numbers from 0 on; that the vocabulary has them is for the caller to check.
SessionRecord parse_record(std::string_view text, const std::string& source);

/// The name under which a chat without one is saved; the next such chat takes its place.
inline constexpr const char* last_session = "last";

/// Throws Error(usage) unless `name` is 1 to 64 letters, digits, "-", "_" and ".", and begins with
/// a letter or digit.
void check_session_name(const std::string& name);

/// A session read from its file.
struct SavedSession {
  Fingerprint fingerprint;
  SessionRecord record;
};

/// The memory that a session is saved with: snapshots on the way of these token sequences.
struct SessionMemory {
  SnapshotIo& snapshot_io;
  std::vector<std::vector<TokenId>> sequences;
  std::uint64_t bytes_max;
};

/// Where sessions lie: one file each, NAME.session; the folder is made when the first one is saved,
/// open to its owner only.
class SessionFolder {
 public:
  explicit SessionFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path path_of(const std::string& name) const;
  /// Throws Error(runtime) where that can't be seen.
  bool has(const std::string& name) const;

  /// Every name, sorted; none where there is no folder. Throws Error(runtime) as has().
  std::vector<std::string> names() const;

  /// Throws Error(model) that begins with the file's path for one that is missing, damaged or of
  /// another version, and says how to remove it.
  SavedSession read(const std::string& name) const;

  /// Replaces the file at once and durably, with what `memory` says of the engine's memory; null:
  /// texts and ids only. Throws Error(runtime).
  void write(const std::string& name, const SavedSession& session,
             const SessionMemory* memory) const;

  /// Puts the memory of a session back into the engine; `here` is what the file's fingerprint has
  /// to be equal to.
  SessionTransfer restore(const std::string& name, const Fingerprint& here,
                          SnapshotIo& snapshot_io) const;

  /// Throws Error(usage) when there is none of the name, Error(runtime) when it can't be removed.
  void remove(const std::string& name) const;

 private:
  std::filesystem::path folder_;
};

/// A table of all sessions: name, turns, tokens of the last answer's prompt and answer, bytes of
/// the file, when it was saved, with which model; of a damaged one, why it can't be read.
std::string session_list_text(const SessionFolder& folder);

/// The same as an array of objects.
Json session_list_json(const SessionFolder& folder);

/// What was said on the session's branch: "user: ..." and "assistant: ..." paragraphs.
std::string transcript(const Conversation& conversation);

}  // namespace hyb::app
