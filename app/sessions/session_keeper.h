#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/runtime/session.h"
#include "app/sessions/conversation.h"
#include "app/sessions/session_folder.h"
#include "core/base/json.h"
#include "core/memory/session/session_writer.h"

namespace hyb::app {

/// Properties of the model and the build that a chat is saved with.
struct SessionOrigin {
  std::string model;  ///< SessionRecord's
  Fingerprint
      fingerprint;  ///< "tokenizer" says whether ids mean the same, the rest what memory is of
  std::int32_t vocab = 0;  ///< ids are below it
};

/// The tokens whose memory is saved: of SessionMemory.
struct BranchTokens {
  std::vector<TokenId> sequence;
  std::int32_t before = 0, before_min = 0;
};

struct Saving {
  const Conversation& conversation;
  std::function<BranchTokens()> tokens = {};  ///< called when needed
};

/// Memory that a session file holds unless --session-size says otherwise.
inline constexpr std::uint64_t session_bytes_usual = std::uint64_t{64} << 20;

/// Keeps a chat's conversation in a file of its own: once it has a name, every turn is saved, its
/// question before the answer begins.
class SessionKeeper {
 public:
  /// Without a folder nothing can be saved. `saves_unnamed`: a chat without a name is saved under
  /// last_session. `snapshot_io` outlives this; null: texts and ids are saved, no memory; nor is
  /// more of it than `bytes_max`.
  SessionKeeper(std::optional<SessionFolder> folder, SessionOrigin origin, bool saves_unnamed,
                SnapshotIo* snapshot_io = nullptr, std::uint64_t bytes_max = session_bytes_usual);

  /// "" until the chat is saved or loaded by name.
  const std::string& name() const { return name_; }

  /// Saves under the name, which the chat then has; "" is the chat's own, or a new one made of the
  /// date. Returns the name. Throws Error(usage) for a name that another session has, and
  /// Error(runtime) when it can't be written or another chat has saved under the name since.
  std::string save(const Saving& saving, const std::string& name);

  /// A conversation that was saved, and what to report of it.
  struct Loaded {
    Conversation conversation;
    std::string remark = {};    ///< empty, or what could not be kept
    std::int32_t restored = 0;  ///< tokens that need not be run again
  };

  /// Reads it, but where `known` is what it still is; the chat has its name from then on. Throws
  /// Error(model) for a file that is missing or damaged; the chat's name is then as before.
  Loaded load(const std::string& name, std::optional<SavedSession> known = {});

  /// Loads it if it is there; else the chat gets the name and nothing was said.
  Loaded open(const std::string& name, std::optional<SavedSession> known = {});

  /// Before a turn: its question, an exchange without an answer. A failure is warned of once; the
  /// next turn tries again. Where another chat has changed the file of this name, this one goes on
  /// under another name, and says so.
  void begin_turn(const Saving& saving, const Exchange& question);

  /// While it is answered: what came of the answer, written once a second.
  void add_answer(std::string_view text);

  /// After a turn.
  void autosave(const Saving& saving);

  /// When the chat is left: where it is in the tree, if that has changed since. A session without
  /// a new turn that this chat can add nothing to stays as it is.
  void close(const Saving& saving);

  /// The name of the file that has the chat; "": there is none, or it could not be written.
  std::string kept_as() const;

  /// The names of all sessions; none where they cannot be listed.
  std::vector<std::string> names() const;

  /// A table of all sessions.
  std::string list_text(int width) const;

  /// The chat has no name any more: a new conversation has begun.
  void forget_name();

 private:
  const SessionFolder& need_folder() const;
  SessionRecord record(const Conversation& conversation) const;
  void open_file(const std::string& name, const Conversation& conversation);
  std::map<std::string, std::string> head(const Conversation& conversation) const;
  Json changes(const Conversation& conversation) const;
  void set_known(const Conversation& conversation);
  void add_changes(const Conversation& conversation);
  void write(const std::string& name, const Saving& saving);
  class Writing;
  void leave_to_other();
  FileVersion own_version() const;
  bool is_own(const std::string& name) const;
  void look_at_file();
  template <typename Write>
  void keep(Write write, std::string_view outlook =
                             "this chat is not saved, and it is tried again after the next turn");
  void restore(const std::string& name, const SavedSession& saved, Loaded& loaded);
  std::string dated_name() const;

  std::optional<SessionFolder> folder_;
  SessionOrigin origin_;
  bool saves_unnamed_;
  SnapshotIo* snapshot_io_;
  std::uint64_t bytes_max_;
  std::string failure_;  ///< of saving, which was warned of; empty: saving works
  std::string name_;
  /// Of the chat's file, as it was read or written; null: it could not be looked at then.
  std::optional<FileVersion> version_ = FileVersion();
  bool is_ours_ = false;                      ///< no other chat had changed it when it was opened
  std::string file_name_;                     ///< of the file that has the chat, which is added to
  std::optional<SessionWriter> writer_;       ///< of that; empty: it was only read
  SessionContent content_;                    ///< as it was read then
  std::map<std::string, std::string> head_;   ///< as that file has it, by member
  std::int32_t turns_ = 0, shown_turns_ = 0;  ///< that it has, without and with its draft
  bool has_draft_ = false;                    ///< its last turn is one that add_changes() replaces
  std::string pending_;                       ///< of an answer
  std::chrono::steady_clock::time_point written_ = {};
};

/// Reads a few KiB per tensor.
SessionOrigin session_origin(Session& session);

}  // namespace hyb::app
