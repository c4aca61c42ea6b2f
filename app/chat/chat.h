#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/chat/commands.h"
#include "app/chat/prompts.h"
#include "app/machine/environment.h"
#include "app/request/answer.h"
#include "app/request/prompt.h"
#include "app/runtime/session.h"
#include "app/sessions/conversation.h"
#include "app/sessions/session_keeper.h"
#include "app/ui/editing.h"

namespace hyb::app {

/// Settings of how a chat reads and shows text.
struct ChatConfig {
  bool is_interactive = false;  ///< notices and status lines are shown
  AnswerView view = {};         ///< of answers, without their start
  bool has_colour = false;      ///< on stderr
  bool utf8 = false;
  bool has_editor = false;  ///< an entry can begin with a draft, see Chat::draft()
  HistoryMode history = HistoryMode::as_template;
  Json tools = nullptr;  ///< that the model may call; null: none
};

/// A conversation with a model: entries in, answers to stdout, all else to stderr. Errors leave the
/// conversation as it was.
class Chat {
 public:
  /// Throws Error(model) when the model has no tokenizer or no chat template, or one that history
  /// can't be preserved with; Error(usage) when the options are out of range. Session and
  /// keeper outlive the chat.
  Chat(Session& session, SessionKeeper& keeper, const GenerationOptions& options,
       const ChatConfig& config);

  void set_system(const std::string& text);

  bool is_new() const { return conversation_.turns() == 0; }

  /// Throws Error(usage) that begins with `source` where the chat template knows no such choice;
  /// without a source it is left out there.
  void set_think(Think think, std::string_view source);

  /// Continues the saved chat of the name, or starts one. System prompt and choice of thinking
  /// are those of its last turn, but where they were set before. `known`: as SessionKeeper::open().
  /// Throws Error(model) when it is damaged.
  void open(const std::string& name, std::optional<SavedSession> known);

  /// Saves what changed since the last turn.
  void close();

  /// Says how to continue what was saved; "" if nothing was.
  std::string kept_text() const;

  /// Says what the chat does after an entry.
  enum class Next : std::uint8_t { go_on, leave };

  /// Answers a message or carries out a slash command. Throws Error when that cannot be done; the
  /// chat can go on.
  Next take(const Entry& entry);

  /// After /edit without a text: the message that the next entry replaces, as it would be entered.
  struct Draft {
    std::int32_t message = 0;  ///< its number in the conversation; 0: there is no draft
    std::string text = {};
  };
  const Draft& draft() const { return draft_; }

  /// Forgets the draft: the message stays as it is.
  void drop_draft();

  /// Returns the work for the time while a person types (see InputRequest::work): it prefills the
  /// beginning of the next prompt. Empty where that would not be cached. Valid until the next call
  /// of any other member.
  std::function<bool()> prefill_work();
  void stop_prefill();

  /// Returns the entries that Tab completes a typed beginning to.
  std::vector<std::string> completions(std::string_view typed) const;

 private:
  Next execute(const SlashCommand& command);
  Next send(const std::string& message);
  Next edit(const SlashCommand& command);
  Next regenerate(std::int32_t count);
  void go_on_with(SessionKeeper::Loaded loaded);
  void save(const std::string& name);
  void copy() const;
  void load(const std::string& name);
  void show_system(const std::string& argument);
  void show_think(const std::string& argument);
  void set(const std::string& argument);
  void read(const std::string& path);
  std::string asked(std::int32_t turn, const std::string& message);

  /// Answers `message` after `turn`; where that gives no answer, the conversation stays where it
  /// was.
  Next send_after(std::int32_t turn, const std::string& message, std::uint64_t seed_shift);
  /// Streams the answer; adds the exchange when the answer has begun.
  Answer answer(const std::string& message, std::uint64_t seed_shift);
  void keep(const std::string& message, const AnswerStart& start, const Answer& given);
  Saving saving() const;
  BranchTokens branch_tokens() const;
  void show_last_exchange() const;
  std::int32_t answered_turn() const;
  std::string checkpoints() const;
  void comment(const Answer& answer) const;
  void notice(std::string_view text) const;
  EncodedPrompt prompt_for(const std::string& message) const;

  Session* session_;
  SessionKeeper* keeper_;
  ChatConfig config_;
  Settings settings_;
  ChatPrompts prompts_;
  Conversation conversation_;
  Draft draft_;
  std::string attached_;  ///< of /read: the next message begins with it
  PrefillAhead ahead_;
  ChatTotals totals_;
  std::optional<Answer> last_;
  std::string last_asked_;        ///< what was set and said for this answer
  std::uint64_t seed_shift_ = 0;  ///< regenerations so far
};

}  // namespace hyb::app
