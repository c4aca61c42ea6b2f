#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/model_source.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/memory/prefix/snapshot_policy.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace CLI {
class App;
}

namespace hyb::app {

/// Everything of a model that is about text; no weight is read for it.
struct ModelTexts {
  Json generation_config = Json::object();
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  /// End-of-answer tokens: generation_config, config (its text_config too) and tokenizer_config
  /// together.
  std::vector<TokenId> stop_tokens;
};

/// Throws Error(model) naming the file that is damaged. An eos_token_id that the vocabulary lacks
/// is a warning where there is another one, else an error: no answer would end.
ModelTexts read_texts(const ModelSource& source);

/// The tokenizer; Error(model) saying which file is missing when there is none.
const Tokenizer& need_tokenizer(const ModelTexts& texts, const ModelSource& source);

/// The chat template; Error(model) naming --raw when there is none.
const ChatTemplate& need_chat_template(const ModelTexts& texts, const ModelSource& source);

/// The same before anything else of the model is read.
void need_chat_template(const ModelSource& source);

/// How a model spells the thought at the start of an answer: begin, opening, thought, closing, end.
struct ThoughtMarkers {
  std::string_view begin = "<think>", end = "</think>";
  /// Ends it, too: what the answer is then, a tool call say, says itself. Empty: there is none.
  std::string_view other_end = "";
  std::string_view opening = "", closing = "";  ///< around the thought, of no interest to readers
  /// Templates take a past answer with its thought as it was given. Otherwise without it.
  bool is_in_content = true;
};

/// By the tokens of the vocabulary: the channels of gpt-oss (harmony) and of Gemma 4, the markers
/// of Mistral and of Cohere, or else <think> and </think>, which need not be tokens. In an answer's
/// text channels show their names and markers; turn tokens do not show. A tool call of gpt-oss is
/// the answer `to=functions.NAME <|constrain|>json<|message|>{...}`.
ThoughtMarkers thought_markers_of(const Tokenizer& tokenizer);

/// What the prompt says of the start of its answer.
struct AnswerStart {
  /// False: the answer is plain text, and nothing in it is a marker of thoughts.
  bool may_think = false;
  /// The thought that the prompt has begun, from its marker on ("<think>\n"); empty: the answer
  /// begins one itself, or has none.
  std::string opening = {};
  ThoughtMarkers markers = {};
};

/// Separates the thought at an answer's start from the rest, while the text streams in. The marker
/// that ends the thought belongs to it; whatever follows is the answer, further markers included.
class ThoughtScanner {
 public:
  explicit ThoughtScanner(const AnswerStart& start);

  struct Piece {
    std::string text;
    bool is_thought;
  };

  /// All pieces together are all texts together. A few characters are held back while they may
  /// become the start of a thought.
  std::vector<Piece> push(std::string_view text);

  /// What is held back, at the end of the answer.
  std::vector<Piece> finish();

 private:
  enum class Place { begin, thought, answer };

  std::vector<Piece> in_thought(std::string_view text);

  ThoughtMarkers markers_;
  Place place_;
  std::string held_;  ///< at the start: all so far; in a thought: its last characters, given out
};

/// A whole answer, taken apart: white space around the thought and before the content left out.
struct SplitAnswer {
  std::optional<std::string> reasoning;  ///< nothing: the answer has no thought
  std::string content;                   ///< empty where the answer was cut off in its thought
};

SplitAnswer split_answer(std::string_view text, const AnswerStart& start);

/// The answer as a past message for a template: {role, content, reasoning_content} where it has a
/// thought and the template `takes_reasoning` by that name; else {role, content} with all of its
/// text, the part that its prompt had begun included, or where the markers say so without its
/// thought.
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

/// The pieces as `hyb render` prints them and encode_chat encodes them.
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

/// Cuts a prompt to `prompt_max` tokens, from its front (left) or its end (right), or throws
/// Error(usage) saying by how much it is too long.
void fit_prompt(std::vector<TokenId>& prompt, std::int32_t prompt_max, Truncate truncate);

/// Throws Error(usage) naming `what` and the byte offset when text is not UTF-8.
void check_utf8(std::string_view text, std::string_view what);

/// The body of a request in a JSON file ("-": stdin): an object with `messages` and whatever else
/// it says but `stream`, as stdout is one; an array is the messages alone. Throws Error(usage)
/// where there are no messages or one is no object with a role, and Error(model) for what is no
/// JSON.
Json read_messages(const std::string& file);

/// {"messages": ...}: a question, and a system prompt unless it is empty. Throws as check_utf8().
Json question_body(const std::string& system, const std::string& text);

/// Whether the prompt of the next turn begins with this turn's prompt and its answer as it was
/// given, thinking included: found by rendering a conversation of three turns. Unknown where the
/// template refuses it, and where it keeps the last answer only as it was.
PlacementPrior placement_prior(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

/// What a template does about thoughts by default.
enum class Thinking : std::uint8_t {
  none,   ///< it begins none, and no variable changes that
  on,     ///< as with enable_thinking, or undecided in a way of its own
  off,    ///< as with enable_thinking false
  always  ///< it begins a thought, and no variable changes that
};

/// "none", "on", "off", "always".
std::string_view name_of(Thinking thinking);

/// What a template does with its variables: found by rendering short conversations, so that only
/// what changes a prompt counts.
struct TemplateTraits {
  Thinking thinking = Thinking::none;
  bool obeys_think = false;      ///< enable_thinking or thinking make a difference
  bool takes_reasoning = false;  ///< reads reasoning_content of past answers
  bool takes_tools = false;      ///< shows tools to the model
};

TemplateTraits template_traits(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

/// TemplateTraits::takes_reasoning alone.
bool takes_reasoning(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace hyb::app
