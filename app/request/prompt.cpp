#include "app/request/prompt.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "app/request/thoughts.h"
#include "app/request/tools.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/text/unicode.h"

namespace hyb::app {
namespace {

Json variables_of(const Tokenizer& tokenizer, const Json& asked) {
  Json variables = asked.is_object() ? asked : Json::object();
  const auto name = [&](const char* key, const std::optional<TokenId>& token) {
    if (!variables.contains(key) && token) variables[key] = std::string(tokenizer.piece(*token));
  };
  name("bos_token", tokenizer.bos());
  name("eos_token", tokenizer.eos());
  name("pad_token", tokenizer.pad());
  return variables;
}

/// True or false; nothing where it is not said. chat_template_kwargs win over all others.
std::optional<bool> flag_of(const Json& variables, const char* name) {
  const Json* value = member_of(variables, name);
  if (const Json* arguments = member_of(variables, "chat_template_kwargs")) {
    if (const Json* wins = member_of(*arguments, name)) value = wins;
  }
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    throw Error(ErrorKind::usage,
                fmt::format("{}: is true or false, got {}", name, excerpt(to_text(*value))));
  }
  return value->get<bool>();
}

/// Marks the place where an answer goes on, as transformers does it: its space shows whether the
/// template keeps white space there.
constexpr std::string_view goes_on_here = "qzxvjhere ";

/// The text of the last message that the answer goes on with: its content, or the last part of it.
std::string& text_to_continue(Json& messages) {
  const auto refuse = [] [[noreturn]] (const char* text) {
    throw Error(ErrorKind::usage, std::string("continue_final_message: ") + text);
  };
  Json* message = messages.is_array() && !messages.empty() ? &messages.back() : nullptr;
  if (message == nullptr || !message->is_object() || !message->contains("role") ||
      (*message)["role"] != "assistant") {
    refuse("the last message is not the assistant's");
  }
  Json* content = message->contains("content") ? &(*message)["content"] : nullptr;
  if (content != nullptr && content->is_array() && !content->empty() &&
      content->back().is_object() && content->back().contains("text")) {
    content = &content->back()["text"];
  }
  if (content == nullptr || !content->is_string()) refuse("the last message has no text");
  return content->get_ref<std::string&>();
}

/// The conversation up to where the text of its last message ends.
Rendered render_begun(const ChatTemplate& chat_template, Json messages, const Json& variables) {
  std::string& text = text_to_continue(messages);
  const std::string wanted(trim(text));
  text += goes_on_here;
  Rendered rendered = chat_template.render(messages, variables);
  const std::string whole = rendered.text();
  const std::string_view mark = trim(goes_on_here);
  std::vector<RenderedPiece>& pieces = rendered.pieces;
  const auto has_mark = [&](const RenderedPiece& piece) {
    return piece.source == TextSource::assistant && piece.text.find(mark) != std::string::npos;
  };
  while (!pieces.empty() && !has_mark(pieces.back())) pieces.pop_back();
  if (pieces.empty() || whole.find(wanted) == std::string::npos) {
    throw Error(
        ErrorKind::usage,
        "continue_final_message: the chat template does not show the last message as it is");
  }
  std::string& last = pieces.back().text;
  last.resize(last.rfind(mark));
  const bool keeps_space = whole.substr(whole.rfind(mark)).starts_with(goes_on_here);
  for (; !keeps_space && !pieces.empty(); pieces.pop_back()) {
    std::string& end = pieces.back().text;
    end.resize(end.find_last_not_of(white_space) + 1);
    if (!end.empty()) break;
  }
  if (!pieces.empty() && pieces.back().text.empty()) pieces.pop_back();
  return rendered;
}

constexpr EncodeOptions as_rendered = {.add_special_tokens = false, .parse_special = true};

TextPiece text_piece(const RenderedPiece& piece) {
  return {.text = piece.text,
          .marked = piece.source != TextSource::tmpl,
          .allow_thinking_markers = piece.source == TextSource::assistant};
}

/// Collects pieces of text and, between them, ids that are taken as they are.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(const TextPiece& piece) { pending_.push_back(piece); }

  void add(std::span<const TokenId> tokens) {
    encode_pending();
    out_.tokens.insert(out_.tokens.end(), tokens.begin(), tokens.end());
  }

  /// The next piece begins a text that other prompts do not have.
  void mark() { marks_.push_back(pending_.size()); }

  EncodedPrompt take() {
    encode_pending();
    return std::move(out_);
  }

 private:
  void encode_pending() {
    const std::span<const TextPiece> pieces(pending_);
    const auto tokens = tokenizer_.encode(pieces, as_rendered);
    for (const std::size_t mark : marks_) {
      // A word may go across the join: what precedes it decides about its tokens only as
      // far as they are the same without the rest.
      const auto before = tokenizer_.encode(pieces.first(mark), as_rendered);
      end_message(out_.tokens.size() + static_cast<std::size_t>(common_prefix(before, tokens)));
    }
    out_.tokens.insert(out_.tokens.end(), tokens.begin(), tokens.end());
    pending_.clear();
    marks_.clear();
  }

  void end_message(std::size_t length) {
    const auto end = static_cast<std::int32_t>(length);
    const std::int32_t last = out_.message_ends.empty() ? 0 : out_.message_ends.back();
    if (end > last) out_.message_ends.push_back(end);
  }

  const Tokenizer& tokenizer_;
  std::vector<TextPiece> pending_;
  std::vector<std::size_t> marks_;  ///< indices of pending_
  EncodedPrompt out_;
};

/// The text of the first user message; empty where it is not a plain text.
std::string_view first_user_text(const Json& messages) {
  for (const Json& message : messages) {
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string() || *role != "user") continue;
    const auto content = message.find("content");
    const bool is_text = content != message.end() && content->is_string();
    return is_text ? trim(content->get_ref<const std::string&>()) : std::string_view();
  }
  return {};
}

/// Returns where the texts of the first and the last user message begin, as far as it is known.
std::pair<std::size_t, std::size_t> user_pieces(const Rendered& rendered, const Json& messages) {
  const std::string_view wanted = first_user_text(messages);
  std::size_t first = rendered.pieces.size(), last = first;
  for (std::size_t i = 0; i < rendered.pieces.size(); ++i) {
    const RenderedPiece& piece = rendered.pieces[i];
    if (piece.source != TextSource::person) continue;
    last = i;
    const bool is_first = first == rendered.pieces.size() && !wanted.empty();
    if (is_first && trim(piece.text) == wanted) first = i;
  }
  return {first, last};
}

/// The own turn that says `text`, at `next` or later; null: none.
const OwnTurn* own_turn_of(std::span<const OwnTurn> own_turns, std::size_t& next,
                           std::string_view text) {
  for (std::size_t i = next; i < own_turns.size(); ++i) {
    const OwnTurn& own = own_turns[i];
    if (own.tokens.empty() || text.size() != own.opening.size() + own.text.size()) continue;
    if (!text.starts_with(own.opening) || !text.ends_with(own.text)) continue;
    next = i + 1;
    return &own;
  }
  return nullptr;
}

}  // namespace

Rendered render_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                     const ChatPrompt& prompt) {
  Json variables = variables_of(tokenizer, prompt.variables);
  const std::optional<bool> begins = flag_of(variables, "add_generation_prompt");
  const bool goes_on = flag_of(variables, "continue_final_message").value_or(false);
  variables.erase("continue_final_message");
  variables["add_generation_prompt"] = begins.value_or(!goes_on);
  if (!goes_on) return chat_template.render(prompt.messages, variables);
  if (begins.value_or(false)) {
    throw Error(ErrorKind::usage,
                "continue_final_message: an answer is either begun or gone on with, so "
                "add_generation_prompt is false");
  }
  return render_begun(chat_template, prompt.messages, variables);
}

EncodedPrompt encode_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                          const ChatPrompt& prompt) {
  const Rendered rendered = render_chat(chat_template, tokenizer, prompt);
  const auto [first, last] = user_pieces(rendered, prompt.messages);
  Encoder encoder(tokenizer);
  std::size_t next_own = 0;
  for (std::size_t i = 0; i < rendered.pieces.size(); ++i) {
    const RenderedPiece& piece = rendered.pieces[i];
    if (i == first || i == last) encoder.mark();
    const OwnTurn* own = piece.source == TextSource::assistant
                             ? own_turn_of(prompt.own_turns, next_own, piece.text)
                             : nullptr;
    if (own != nullptr) {
      if (!own->opening.empty()) {
        encoder.add({.text = own->opening, .marked = true, .allow_thinking_markers = true});
      }
      encoder.add(own->tokens);
    } else {
      encoder.add(text_piece(piece));
    }
  }
  EncodedPrompt encoded = encoder.take();
  const ThoughtMarkers markers = thought_markers_of(tokenizer);
  std::string opening = opening_of(rendered, markers);
  // Where the content of an answer goes on, no thought begins.
  const bool has_content = !rendered.pieces.empty() && opening.empty() &&
                           rendered.pieces.back().source == TextSource::assistant;
  encoded.start = {.may_think = !has_content,
                   .opening = std::move(opening),
                   .markers = markers,
                   .calls = call_terms(prompt, chat_template, tokenizer)};
  if (has_content) {
    const AnswerStart whole = {.may_think = true, .markers = markers};
    encoded.start.begun = split_answer(rendered.pieces.back().text, whole).content;
  }
  if (encoded.tokens.empty()) {
    throw Error(ErrorKind::model,
                "the chat template makes an empty prompt of this conversation; hyb run --raw "
                "continues plain text without one");
  }
  return encoded;
}

std::vector<TokenId> encode_pieces(const Tokenizer& tokenizer,
                                   std::span<const RenderedPiece> pieces) {
  std::vector<TextPiece> texts;
  for (const RenderedPiece& piece : pieces) texts.push_back(text_piece(piece));
  return tokenizer.encode(texts, as_rendered);
}

std::vector<TokenId> encode_raw(const Tokenizer& tokenizer, std::string_view text,
                                bool allow_special) {
  auto tokens =
      tokenizer.encode(text, {.add_special_tokens = true, .parse_special = allow_special});
  const auto bos = tokenizer.bos();
  const bool is_double = bos && tokens.size() > 1 && tokens[0] == *bos && tokens[1] == *bos;
  if (is_double) tokens.erase(tokens.begin());
  return tokens;
}

bool spells_added_tokens(const Tokenizer& tokenizer, std::string_view text,
                         std::span<const TokenId> tokens) {
  if (text.find_first_of("<[") == std::string_view::npos) return false;  // so published ones begin
  const std::vector<TokenId> others = encode_raw(tokenizer, text, true);
  return !std::equal(tokens.begin(), tokens.end(), others.begin(), others.end());
}

void fit_prompt(std::vector<TokenId>& prompt, std::int32_t prompt_max, Truncate truncate) {
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length <= prompt_max) return;
  const std::int64_t over = length - prompt_max;
  if (truncate == Truncate::refuse) {
    throw Error(ErrorKind::usage,
                fmt::format("the prompt has {} tokens, {} more than the limit of {}; shorten it, "
                            "raise --context or --memory, or cut it with --truncate left|right",
                            length, over, prompt_max));
  }
  if (truncate == Truncate::left) {
    prompt.erase(prompt.begin(), prompt.begin() + over);
  } else {
    prompt.resize(static_cast<std::size_t>(prompt_max));
  }
}

}  // namespace hyb::app
