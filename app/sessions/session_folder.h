#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "app/sessions/conversation.h"
#include "core/base/json.h"
#include "core/memory/session/session.h"
#include "core/memory/session/session_writer.h"

namespace hyb::app {

/// A saved chat: what the app's section of a session file holds.
struct SessionRecord {
  std::string model;         ///< as the user named it, from any folder
  std::int64_t saved_s = 0;  ///< since 1970
  Conversation conversation = {};
};

/// All but the turns: the branches, the system prompt.
Json head_json(const SessionRecord& record);

/// A turn with its texts and ids.
Json turn_json(const Conversation::Turn& turn);

/// Writes the record as JSON: the head, and every turn.
std::string record_text(const SessionRecord& record);

/// Reads it back. More texts than one are changes: members of the head in place of those before,
/// "turns" that follow those so far, and "more" of the last one's answer. The texts are untrusted:
/// whatever breaks the form is Error(model) that begins with `source`. Ids are numbers from 0 on;
/// that the vocabulary has them is for the caller to check.
SessionRecord parse_record(const std::vector<std::string>& texts, const std::string& source);

/// The name under which a chat without one is saved. Once other such chats have taken its place it
/// is "last-1" and so on, until it is the oldest of `last_sessions`.
inline constexpr const char* last_session = "last";
inline constexpr int last_sessions = 5;

/// Says whether it is one of those names.
bool is_taken_over(std::string_view name);

/// Throws Error(usage) for those: they are no chat's own.
void check_own_name(const std::string& name);

/// Throws Error(usage) unless `name` is 1 to 64 letters, digits, "-", "_" and ".", and begins with
/// a letter or digit.
void check_session_name(const std::string& name);

/// Distinguishes a file from another one of the same name.
struct FileVersion {
  std::uint64_t file = 0;
  std::int64_t changed_ns = 0;
  std::int64_t bytes = 0;
  auto operator<=>(const FileVersion&) const = default;
};

/// Returns that of an open file; null where it can't be looked at.
std::optional<FileVersion> version_of(int descriptor);

/// A session read from its file.
struct SavedSession {
  Fingerprint fingerprint;
  SessionRecord record;
  bool has_draft = false;       ///< its last turn was not answered to the end when its process was
  bool is_older = false;        ///< of a form that nothing is added to
  SessionContent content = {};  ///< without its texts
  FileVersion version = {};     ///< before it was read
};

/// Folder of saved sessions, one file NAME.session each. It is created when the first one is saved,
/// open to its owner only.
class SessionFolder {
 public:
  explicit SessionFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path path_of(const std::string& name) const;
  /// Throws Error(runtime) where that can't be seen.
  bool has(const std::string& name) const;

  /// Returns an empty version where there is no file. Throws as has().
  FileVersion version_of(const std::string& name) const;

  /// Every name, sorted; none where there is no folder. Throws Error(runtime) as has().
  std::vector<std::string> names() const;

  /// Throws Error(usage) with the nearest name when there is none of this one.
  void need(const std::string& name) const;

  /// Throws Error(usage) as need(), and Error(model) that begins with the file's path for one that
  /// is damaged or of another version, and says how to see what is whole and how to remove it.
  SavedSession read(const std::string& name) const;

  /// The record alone, of a damaged file as far as it is whole, which is warned of. Throws as
  /// read() where nothing is.
  SessionRecord read_record(const std::string& name) const;

  /// Begins a file in place of any other, at once and durably. Throws Error(runtime).
  SessionWriter create(const std::string& name, const SavedSession& session) const;

  /// Throws Error(usage) as need(), Error(runtime) when it can't be removed.
  void remove(const std::string& name) const;

  /// The same; Error(usage) where the new name is none, or another session has it.
  void rename(const std::string& name, const std::string& to) const;

  /// Renames last_session to "last-1" where it has an answer, and those before it up to the first
  /// free name; where there is none, the oldest of `last_sessions` goes.
  void set_last_aside() const;

  /// Makes the one of `last_sessions` that is this file last_session again, and those after it one
  /// older. False: none of them is.
  bool bring_last_back(const FileVersion& file) const;

  /// Returns the name that this file has among `last_sessions`; "": none.
  std::string last_name_of(const FileVersion& file) const;

 private:
  bool last_has_answer() const;
  void make_older(int age) const;
  int age_of(const FileVersion& file) const;  // last_sessions: it is none of them

  std::filesystem::path folder_;
};

/// A table of all sessions: name, turns, tokens of the last answer's prompt and answer, bytes of
/// the file, when it was saved, with which model; as fitted_text() has it.
std::string session_list_text(const SessionFolder& folder, int width);

/// The same as an array of objects.
Json session_list_json(const SessionFolder& folder);

/// Returns the turns of the session's branch as paragraphs "user: ..." and "assistant: ...", or
/// "assistant (stopped): ..." for an answer that was stopped.
std::string transcript(const Conversation& conversation);

/// The same as Markdown.
std::string transcript_markdown(const Conversation& conversation);

/// Writes that to a file. One that is there is replaced if it is such a file; else this
/// throws Error(usage), and Error(runtime) where it can't be written.
void write_transcript(const Conversation& conversation, const std::filesystem::path& path);

/// The same as the body of a request, which `hyb run --messages` takes.
Json transcript_json(const SessionRecord& record);

bool is_unanswered(const Exchange& exchange);

}  // namespace hyb::app
