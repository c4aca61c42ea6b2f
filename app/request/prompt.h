#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/model/model_source.h"
#include "app/options/words.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/engine/request.h"
#include "core/text/answer_scanner.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// Everything of a model that is about text; no weight is read for it.
struct ModelTexts {
  Json generation_config = Json::object();
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  /// End-of-answer tokens: generation_config, config (its text_config too) and tokenizer_config
  /// together.
  std::vector<TokenId> stop_tokens;
  std::vector<TokenId> banned_tokens;  ///< that generation_config has never drawn, ascending
};

/// Throws Error(model) naming the file that is damaged. An eos_token_id that the vocabulary lacks
/// is a warning where there is another one, else an error: no answer would end.
ModelTexts read_texts(const ModelSource& source);

/// The part of it that generation_config.json and config.json say: where answers end, and what is
/// never drawn. `texts` has its tokenizer, where there is one.
void read_generation_config(const ModelSource& source, ModelTexts& texts);

/// The tokenizer; Error(model) saying which file is missing when there is none.
const Tokenizer& need_tokenizer(const ModelTexts& texts, const ModelSource& source);

/// The chat template; Error(model) naming --raw when there is none.
const ChatTemplate& need_chat_template(const ModelTexts& texts, const ModelSource& source);

/// The same before anything else of the model is read.
void need_chat_template(const ModelSource& source);

/// The answer as a past message for a template: {role, content, reasoning_content} where it has a
/// thought and the template `takes_reasoning` by that name; else {role, content} with all of its
/// text, the part that its prompt had begun included, or where the markers say so without its
/// thought. A call of harmony is a member of tool_calls; its thought is left out where it has
/// content too: gpt-oss's template takes one of them.
Json assistant_message(std::string_view text, const AnswerStart& start, bool takes_reasoning);

/// What there is to know for it of all past answers.
struct PastThoughts {
  ThoughtMarkers markers = {};
  bool takes_reasoning = false;
};

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

/// Stop strings then end the answer, not the thought before it: unless one of them spells the end
/// of a thought, which means just that.
void set_start(Request& request, const AnswerStart& start);

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

/// The thought that a prompt has begun and not ended, see AnswerStart.
std::string opening_of(const Rendered& rendered, const ThoughtMarkers& markers = {});

/// A raw prompt: with the tokenizer's own BOS and the like; control tokens only if allowed, and
/// BOS only once even where the text spells it too.
std::vector<TokenId> encode_raw(const Tokenizer& tokenizer, std::string_view text,
                                bool allow_special);

/// Whether other tokens than `tokens`, of encode_raw() without them, come of control tokens.
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

/// Throws Error(usage), which begins with `place`, unless these are messages: at least one, each an
/// object with a role in text and with a content, which an answer that calls tools may lack.
void check_messages(const Json& messages, const std::string& place = {});

/// The body of a request in a JSON file ("-": stdin): an object with `messages` and whatever else
/// it says but `stream`, as stdout is one; an array is the messages alone. Throws Error(usage)
/// where there are no messages and as check_messages(), and Error(model) for what is no JSON.
Json read_messages(const std::string& file);

/// {"messages": ...}: a question, and a system prompt unless it is empty. Throws as check_utf8().
Json question_body(const std::string& system, const std::string& text);

}  // namespace hyb::app
