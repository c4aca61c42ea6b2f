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

  /// The prompt for `message` said behind `turn`.
  EncodedPrompt prompt(const Conversation& conversation, std::int32_t turn,
                       const std::string& message) const;

  /// The end of every prompt for `message` behind `turn`: from the end of the answer before it to
  /// the begin of its own. An Exchange keeps it as its lead.
  std::vector<TokenId> lead(const Conversation& conversation, std::int32_t turn,
                            const std::string& message) const;

  /// The tokens with which the prompt of a message said behind `turn` begins, whatever it says; may
  /// be empty.
  std::vector<TokenId> lasting(const Conversation& conversation, std::int32_t turn) const;

 private:
  EncodedPrompt rendered(const Conversation& conversation, std::int32_t turn,
                         const std::string& message) const;
  EncodedPrompt encoded_lead(const Conversation& conversation, std::int32_t turn,
                             const std::string& message) const;
  EncodedPrompt preserved(const Conversation& conversation, std::int32_t turn,
                          const std::string& message) const;
  std::vector<TokenId> answer_ids(const Exchange& exchange) const;

  const ChatTemplate& chat_template_;
  const Tokenizer& tokenizer_;
  HistoryMode mode_;
};

}  // namespace hyb::app
