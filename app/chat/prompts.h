#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/request/prompt.h"
#include "app/request/thoughts.h"
#include "app/sessions/conversation.h"
#include "core/engine/engine.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// Form in which past turns reach the model.
enum class HistoryMode : std::uint8_t {
  as_template,  ///< rendered again, as the template wants past turns (it may drop their thinking)
  preserve      ///< the ids that the model was given and gave, whatever the template would drop
};

/// Makes the prompts of a conversation. What a person wrote never becomes a control token, in
/// either mode.
class ChatPrompts {
 public:
  /// Template and tokenizer outlive this. `tools`: in OpenAI's form, or null. Throws Error(model)
  /// when past turns are to be preserved and the template shows no past answers, so that what is
  /// between them is unknown.
  ChatPrompts(const ChatTemplate& chat_template, const Tokenizer& tokenizer, HistoryMode mode,
              Json tools = nullptr);

  HistoryMode mode() const { return mode_; }

  void set_think(Think think);
  Think think() const { return think_; }

  /// The prompt for `message` after `turn` (0: as the first one). Its message_ends are as
  /// EncodedPrompt says, with one more where the template ends prompts with what the prompt of the
  /// next turn does not have at this place any more (a thought begun, say): before that. Throws
  /// Error(model) where the template makes nothing of the conversation.
  EncodedPrompt prompt(const Conversation& conversation, std::int32_t turn,
                       const std::string& message) const;

  /// The prompt that `turn` answered, made as it was then.
  EncodedPrompt prompt_of(const Conversation& conversation, std::int32_t turn) const;

  /// The end of every prompt for `message` after `turn`: from the end of the answer before it to
  /// the start of its own. An Exchange keeps it as its lead.
  std::vector<TokenId> lead(const Conversation& conversation, std::int32_t turn,
                            const std::string& message) const;

  /// The tokens with which every prompt of a message after `turn` begins; may be empty.
  std::vector<TokenId> stable_prefix(const Conversation& conversation, std::int32_t turn) const;

 private:
  struct Question {
    const std::string& message;
    Think think;
  };

  ChatPrompt asked(Json messages, Think think) const;
  EncodedPrompt made(const Conversation& conversation, std::int32_t turn,
                     const Question& question) const;
  EncodedPrompt rendered(const Conversation& conversation, std::int32_t turn,
                         const Question& question) const;
  EncodedPrompt encoded_lead(const Conversation& conversation, std::int32_t turn,
                             const Question& question) const;
  EncodedPrompt preserved(const Conversation& conversation, std::int32_t turn,
                          const Question& question) const;
  std::vector<TokenId> lead_ids(const Conversation& conversation, std::int32_t turn,
                                const Question& question) const;
  std::int32_t transient_tokens() const;
  std::vector<TokenId> answer_ids(const Exchange& exchange) const;

  const ChatTemplate& chat_template_;
  const Tokenizer& tokenizer_;
  HistoryMode mode_;
  Json tools_;
  PastThoughts thoughts_;
  Think think_ = {};
  std::int32_t transient_tokens_ = 0;  ///< at the end of a prompt, gone from the next turn's
};

/// Moves within a conversation, as the slash commands name them. Each returns a line that says
/// where it is now, and throws Error(usage) when there is no such place.

/// Describes the current place in the conversation.
std::string place_text(const Conversation& conversation);

/// Throws where `count` messages back is before the first of them.
void check_back(std::string_view command, std::int32_t count, std::int32_t messages);

/// Takes the last `count` turns back; they must be there.
std::string undo(Conversation& conversation, std::int32_t count);

/// Starts a branch; without a name, "fork-1" or the next number that is free. Names are not
/// numbers, for /goto.
std::string fork(Conversation& conversation, const std::string& name);

/// `place`: the name of a branch or the number of a turn.
std::string go_to(Conversation& conversation, const std::string& place);

/// The tokens of a turn that need not be prefilled again to continue after it.
using Resumable = std::function<std::int32_t(std::int32_t turn)>;

/// A table of all turns, drawn as a tree: number, tokens and how many of them are kept (left out
/// without `resumable`), branches that end there, message. A turn is below the one that it follows;
/// lines show where several follow one. In plain ASCII unless `utf8`.
std::string checkpoints_text(const Conversation& conversation, const Resumable& resumable,
                             bool utf8);

/// Prefills the start of the next prompt while a person types, so that the prompt itself prefills
/// only what is new. One thread at a time; between calls nothing runs.
class PrefillAhead : public Sink {
 public:
  /// The engine outlives this.
  explicit PrefillAhead(Engine& engine) : engine_(engine) {}
  ~PrefillAhead() override;
  PrefillAhead(const PrefillAhead&) = delete;
  PrefillAhead& operator=(const PrefillAhead&) = delete;

  /// Starts to prefill these tokens, which are computed when there is time. Stops what ran before.
  void begin(std::function<std::vector<TokenId>()> tokens);

  /// A piece of the work, short enough for an entry to wait for it unnoticed.
  /// False: nothing is left to do, or it failed: then the prompt runs it all.
  bool work();

  /// Stops it at once; what was prefilled stays in the engine's cache.
  void end();

  /// Tokens that were run ahead, of all prompts.
  std::int64_t tokens() const { return tokens_; }

  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId, std::int32_t, const Completion& completion) override;

 private:
  void submit();

  Engine& engine_;
  std::function<std::vector<TokenId>()> asked_;
  std::optional<RequestId> running_;
  std::int64_t tokens_ = 0;
};

}  // namespace hyb::app
