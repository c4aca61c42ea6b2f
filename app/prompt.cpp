#include "app/prompt.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <nlohmann/json.hpp>

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
    out_.insert(out_.end(), tokens.begin(), tokens.end());
  }

  std::vector<TokenId> take() {
    encode_pending();
    return std::move(out_);
  }

 private:
  void encode_pending() {
    if (pending_.empty()) return;
    const auto tokens = tokenizer_.encode(std::span<const TextPiece>(pending_),
                                          {.add_special_tokens = false, .parse_special = true});
    out_.insert(out_.end(), tokens.begin(), tokens.end());
    pending_.clear();
  }

  const Tokenizer& tokenizer_;
  std::vector<TextPiece> pending_;
  std::vector<TokenId> out_;
};

}  // namespace

Rendered render_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                     const ChatPrompt& prompt) {
  return chat_template.render(prompt.messages, variables_of(tokenizer, prompt.variables));
}

std::vector<TokenId> encode_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                 const ChatPrompt& prompt) {
  const Rendered rendered = render_chat(chat_template, tokenizer, prompt);
  Encoder encoder(tokenizer);
  std::size_t next_own = 0;
  for (const RenderedPiece& piece : rendered.pieces) {
    if (piece.source == TextSource::assistant && next_own < prompt.own_turns.size()) {
      const OwnTurn& own = prompt.own_turns[next_own++];
      if (own.text == piece.text) {
        encoder.add(own.tokens);
        continue;
      }
    }
    encoder.add(text_piece(piece));
  }
  std::vector<TokenId> tokens = encoder.take();
  if (tokens.empty()) {
    throw Error(ErrorKind::model,
                "the chat template makes an empty prompt of this conversation; hyb run --raw "
                "continues plain text without one");
  }
  return tokens;
}

std::vector<TokenId> encode_raw(const Tokenizer& tokenizer, std::string_view text,
                                bool allow_special) {
  return tokenizer.encode(text, {.add_special_tokens = true, .parse_special = allow_special});
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
