#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/chat/conversation.h"
#include "app/prompt.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// How past turns reach the model.
enum class HistoryMode : std::uint8_t {
  as_template,  ///< rendered anew, as the template wants past turns (it may drop their thinking)
  preserve      ///< the ids that the model was given and gave, whatever the template would drop
};

/// Makes the prompts of a conversation. What a person wrote never becomes a control token, in
/// either mode.
class ChatPrompts {
 public:
  /// Template and tokenizer outlive this. Throws Error(model) when past turns are to be preserved
  /// and the template shows no past answers, so that there is no telling what stands between them.
  ChatPrompts(const ChatTemplate& chat_template, const Tokenizer& tokenizer, HistoryMode mode);

  HistoryMode mode() const { return mode_; }

  /// What prompts are made with from now on.
  void set_think(Think think);
  Think think() const { return think_; }

  /// The prompt for `message` said behind `turn` (0: as the first one). Its message_ends are as
  /// EncodedPrompt says, with one more where the template ends prompts with what the prompt of the
  /// next turn does not have at this place any more (a thought begun, say): before that. Throws
  /// Error(model) where the template makes nothing of the conversation.
  EncodedPrompt prompt(const Conversation& conversation, std::int32_t turn,
                       const std::string& message) const;

  /// The prompt that `turn` answered, made as it was then.
  EncodedPrompt prompt_of(const Conversation& conversation, std::int32_t turn) const;

  /// The end of every prompt for `message` behind `turn`: from the end of the answer before it to
  /// the begin of its own. An Exchange keeps it as its lead.
  std::vector<TokenId> lead(const Conversation& conversation, std::int32_t turn,
                            const std::string& message) const;

  /// The tokens with which the prompt of a message said behind `turn` begins, whatever it says; may
  /// be empty.
  std::vector<TokenId> lasting(const Conversation& conversation, std::int32_t turn) const;

 private:
  struct Question {
    const std::string& message;
    Think think;
  };

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
  std::int32_t passing_tokens() const;
  std::vector<TokenId> answer_ids(const Exchange& exchange) const;

  const ChatTemplate& chat_template_;
  const Tokenizer& tokenizer_;
  HistoryMode mode_;
  bool takes_reasoning_;
  Think think_ = {};
  std::int32_t passing_tokens_ = 0;  ///< at the end of a prompt, gone from the next turn's
};

}  // namespace hyb::app
