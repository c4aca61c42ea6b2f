#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/conversation.h"
#include "app/options.h"
#include "app/session.h"
#include "app/sessions/session_folder.h"

namespace hyb::app {

/// What a chat is saved with.
struct SessionOrigin {
  std::string model;  ///< as the user named it
  Fingerprint
      fingerprint;  ///< "tokenizer" says whether ids mean the same, the rest what memory is of
  std::int32_t vocab = 0;  ///< ids are below it
};

/// What is to be saved.
struct Saving {
  const Conversation& conversation;
  /// Sequences whose memory goes with it: of the turns that lead here, or of all that were ever
  /// given. Called when needed.
  std::function<std::vector<std::vector<TokenId>>(bool all_turns)> sequences = {};
};

/// How much memory is written after every turn, so that it causes no wait; all of it is when the
/// chat is saved by hand, or left.
inline constexpr std::uint64_t turn_bytes_max = std::uint64_t{256} << 20;

/// Keeps a chat's conversation in a file of its own: once it has a name, every turn is saved.
class SessionKeeper {
 public:
  /// Without a folder nothing can be saved. `saves_unnamed`: a chat without a name is saved under
  /// last_session. `snapshot_io` outlives this; null: texts and ids are saved, no memory.
  SessionKeeper(std::optional<SessionFolder> folder, SessionOrigin origin, bool saves_unnamed,
                SnapshotIo* snapshot_io = nullptr);

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

  /// Reads it; the chat has its name from then on. Throws Error(model) for a file that is missing
  /// or damaged; the chat's name is then as before.
  Loaded load(const std::string& name);

  /// Loads it if it is there; else the chat gets the name and nothing was said.
  Loaded open(const std::string& name);

  /// After a turn. A failure is warned of once; the next turn tries again.
  void autosave(const Saving& saving);

  /// The same when the chat is left.
  void close(const Saving& saving);

  /// Of all sessions; none where they cannot be listed.
  std::vector<std::string> names() const;

  /// A table of all sessions.
  std::string list_text() const;

  /// The chat has no name any more: a new conversation has begun.
  void forget_name();

 private:
  /// Distinguishes a file from another one of the same name.
  struct Version {
    std::uint64_t file = 0;
    std::int64_t changed_ns = 0;
    auto operator<=>(const Version&) const = default;
  };

  const SessionFolder& need_folder() const;
  /// Throws Error(runtime) where that can't be seen.
  Version version_of(const std::string& name) const;
  enum class Extent : std::uint8_t { turn, all };
  void write(const std::string& name, const Saving& saving, Extent extent);
  void write_own(const std::string& name, const Saving& saving, Extent extent);
  void keep(const Saving& saving, Extent extent);
  void restore(const std::string& name, Loaded& loaded);
  std::string dated_name() const;

  std::optional<SessionFolder> folder_;
  SessionOrigin origin_;
  bool saves_unnamed_;
  SnapshotIo* snapshot_io_;
  std::string failure_;  ///< of saving, which was warned of; empty: saving works
  std::string name_;
  /// Of the file as this chat knows it. Empty: it wrote the file and could not look at it then.
  std::optional<Version> version_ = Version();
};

/// What chats with this model are saved with. Reads a few KiB per tensor.
SessionOrigin session_origin(Session& session);

}  // namespace hyb::app
