#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "app/chat/commands.h"
#include "app/chat/conversation.h"
#include "app/chat/report.h"
#include "app/chat/settings.h"
#include "app/environment.h"
#include "app/model_source.h"
#include "app/session.h"
#include "app/ui/entry.h"

namespace hyb::app {

/// How a chat talks.
struct ChatManners {
  bool has_person = false;  ///< notices and status lines are shown
  bool sanitizes = false;   ///< stdout is a terminal
  bool has_colour = false;  ///< on stderr
  bool utf8 = false;
};

/// Throws Error(model) that names `hyb run --raw` when the model has no chat template. Reads no
/// weights.
void need_chat_template(const ModelSource& source);

/// A conversation with a model: entries in, answers to stdout, all else to stderr. Errors leave the
/// conversation as it was.
class Chat {
 public:
  /// Throws Error(model) when the model has no tokenizer or no chat template, Error(usage) when the
  /// options are out of range. The session outlives the chat.
  Chat(Session& session, const GenerationOptions& options, const ChatManners& manners);

  void set_system(const std::string& text);

  /// What becomes of the chat after an entry.
  enum class Next : std::uint8_t { go_on, leave };

  /// Answers a message or carries out a slash command. Throws Error when that cannot be done; the
  /// chat can go on.
  Next take(const Entry& entry);

 private:
  Next carry_out(const SlashCommand& command);
  Next say(const std::string& message);
  Next regenerate(std::int32_t count);
  void undo(std::int32_t count);
  void show_system(const std::string& argument);

  /// Streams the answer; adds the exchange when the answer has begun.
  Answer answer(const std::string& message, std::uint64_t seed_shift);
  void comment(const Answer& answer) const;
  void notice(std::string_view text) const;
  std::vector<TokenId> prompt_for(const std::string& message) const;

  Session* session_;
  ChatManners manners_;
  Settings settings_;
  Conversation conversation_;
  ChatTotals totals_;
  std::optional<Answer> last_;
  std::uint64_t seed_shift_ = 0;  ///< regenerations so far
};

}  // namespace hyb::app
