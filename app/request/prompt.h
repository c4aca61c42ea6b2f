#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/options/words.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/engine/request.h"
#include "core/text/answer_scanner.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// An answer the engine itself gave: its text and its own ids, end-of-turn token left out.
struct OwnTurn {
  std::string text;
  std::vector<TokenId> tokens;
  std::string opening = {};  ///< text that the prompt had begun the answer with
};

struct ChatPrompt {
  Json messages;   ///< array of {role, content, ...}
  Json variables;  ///< object: tools, add_generation_prompt, chat_template_kwargs, ...
  std::span<const OwnTurn> own_turns = {};  ///< in the order of the assistant messages they answer
  Json tools = nullptr;   ///< whose calls are found in the answer, in OpenAI's form; null: none
  bool is_bound = false;  ///< the answer is nothing but calls, see call_schema()
};

/// A prompt as the engine takes it.
struct EncodedPrompt {
  std::vector<TokenId> tokens;
  /// Positions that other prompts are likely to share up to: where the text of the first user
  /// message begins (after system prompt and tools), and that of the last one (all of the
  /// conversation so far does). Ascending, above 0; no token before one depends on what follows.
  std::vector<std::int32_t> message_ends = {};
  AnswerStart start = {};
};

/// Renders messages and encodes them. Text of user, system and tool messages never becomes a
/// control token; an own turn whose text (with its opening) the template prints unchanged keeps the
/// engine's own ids.
/// Throws Error(model) when the template makes nothing of the messages.
EncodedPrompt encode_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                          const ChatPrompt& prompt);

/// Pieces as encode_chat encodes them, as one text.
std::vector<TokenId> encode_pieces(const Tokenizer& tokenizer,
                                   std::span<const RenderedPiece> pieces);

/// The pieces as `hyb render` prints them and encode_chat encodes them. With the variable
/// continue_final_message the answer goes on with the text of the last message, which is the
/// assistant's, and add_generation_prompt may not be true. Throws Error(usage) where the template
/// does not show that text.
Rendered render_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                     const ChatPrompt& prompt);

/// A raw prompt: with the tokenizer's own BOS and the like; control tokens only if allowed, and
/// BOS only once even where the text spells it too.
std::vector<TokenId> encode_raw(const Tokenizer& tokenizer, std::string_view text,
                                bool allow_special);

/// True if a text spells control tokens: with these it encodes to other tokens than `tokens`, the
/// result of encode_raw() without them.
bool spells_added_tokens(const Tokenizer& tokenizer, std::string_view text,
                         std::span<const TokenId> tokens);

inline constexpr const char* plain_tokens_warning =
    "there are control tokens in text to be continued, and they are read as plain text; "
    "--allow-special reads them as tokens";

enum class Truncate : std::uint8_t { refuse, left, right };

inline constexpr Words<Truncate, 2> truncate_words = {
    {{"left", Truncate::left}, {"right", Truncate::right}}};

/// Cuts a prompt to `prompt_max` tokens, from its front (left) or its end (right), or throws
/// Error(usage) saying by how much it is too long.
void fit_prompt(std::vector<TokenId>& prompt, std::int32_t prompt_max, Truncate truncate);

}  // namespace hyb::app
