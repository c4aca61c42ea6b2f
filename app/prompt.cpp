#include "app/prompt.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/white_space.h"
#include "core/base/common_tokens.h"
#include "core/base/error.h"

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
  if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
  return variables;
}

constexpr EncodeOptions as_rendered = {.add_special_tokens = false, .parse_special = true};

TextPiece text_piece(const RenderedPiece& piece) {
  return {.text = piece.text,
          .marked = piece.source != TextSource::tmpl,
          .allow_thinking_markers = piece.source == TextSource::assistant};
}

/// Collects pieces of text and, between them, ids that stand as they are.
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
      // A word may go across the join: what stands before it alone decides about its tokens only as
      // far as they are the same without the rest.
      const auto before = tokenizer_.encode(pieces.first(mark), as_rendered);
      end_message(out_.tokens.size() + static_cast<std::size_t>(common_tokens(before, tokens)));
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
    return is_text ? trimmed(content->get_ref<const std::string&>()) : std::string_view();
  }
  return {};
}

/// Where the texts of the first and of the last user message begin, as far as it can be told.
std::pair<std::size_t, std::size_t> user_pieces(const Rendered& rendered, const Json& messages) {
  const std::string_view wanted = first_user_text(messages);
  std::size_t first = rendered.pieces.size(), last = first;
  for (std::size_t i = 0; i < rendered.pieces.size(); ++i) {
    const RenderedPiece& piece = rendered.pieces[i];
    if (piece.source != TextSource::person) continue;
    last = i;
    const bool is_first = first == rendered.pieces.size() && !wanted.empty();
    if (is_first && trimmed(piece.text) == wanted) first = i;
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
  return chat_template.render(prompt.messages, variables_of(tokenizer, prompt.variables));
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
  encoded.start = {.may_think = true, .opening = opening_of(rendered)};
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

std::string opening_of(const Rendered& rendered) {
  std::string behind;
  for (std::size_t i = rendered.pieces.size(); i-- > 0;) {
    const RenderedPiece& piece = rendered.pieces[i];
    const bool is_last = i + 1 == rendered.pieces.size();
    // What a person wrote begins no thought, and a past answer has ended with its turn.
    if (piece.source == TextSource::person) break;
    if (piece.source == TextSource::assistant && !is_last) break;
    const std::size_t begin = piece.text.rfind(thought_begin), end = piece.text.rfind(thought_end);
    const bool has_begin = begin != std::string::npos, has_end = end != std::string::npos;
    if (has_end && (!has_begin || end > begin)) break;
    if (has_begin) return piece.text.substr(begin) + behind;
    behind.insert(0, piece.text);
  }
  return {};
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

void check_utf8(std::string_view text, std::string_view what) {
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t point = 0;
    const auto read = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                       static_cast<utf8proc_ssize_t>(text.size() - at), &point);
    if (read <= 0) {
      throw Error(ErrorKind::usage, fmt::format("{} is not valid UTF-8 at byte {}", what, at));
    }
    at += static_cast<std::size_t>(read);
  }
}

}  // namespace hyb::app
