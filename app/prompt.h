#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/thoughts.h"
#include "core/base/ids.h"
#include "core/base/json.h"
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
};

/// A prompt as the engine takes it.
struct EncodedPrompt {
  std::vector<TokenId> tokens;
  /// Positions that other prompts are likely to share up to: where the text of the first user
  /// message begins (system prompt and tools stand before it), and that of the last one (all of the
  /// conversation so far does). Ascending, above 0; no token before one depends on what is behind.
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

/// The pieces as `hyb render` prints them and encode_chat encodes them.
Rendered render_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                     const ChatPrompt& prompt);

/// The thought that a prompt has begun and not ended, see AnswerStart.
std::string opening_of(const Rendered& rendered);

/// A raw prompt: with the tokenizer's own BOS and the like; control tokens only if allowed, and
/// BOS only once even where the text spells it too.
std::vector<TokenId> encode_raw(const Tokenizer& tokenizer, std::string_view text,
                                bool allow_special);

enum class Truncate : std::uint8_t { refuse, left, right };

/// Cuts a prompt to `prompt_max` tokens, from its front (left) or its end (right), or throws
/// Error(usage) saying by how much it is too long.
void fit_prompt(std::vector<TokenId>& prompt, std::int32_t prompt_max, Truncate truncate);

/// Throws Error(usage) naming `what` and the byte offset when text is not UTF-8.
void check_utf8(std::string_view text, std::string_view what);

}  // namespace hyb::app
