#include "core/text/tokenizer.h"

#include <algorithm>

#include "core/io/gguf.h"
#include "core/text/gguf_tokenizer.h"
#include "core/text/tiktoken.h"
#include "core/text/tokenizer_parts.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

GuardedText join(std::span<const TextPiece> pieces, const EncodeOptions& options) {
  GuardedText text;
  for (const TextPiece& piece : pieces) {
    const Guard unmarked = options.parse_special ? Guard::open : Guard::closed;
    const Guard marked = piece.allow_thinking_markers ? Guard::thinking : Guard::closed;
    text.append(piece.text, piece.marked ? marked : unmarked);
  }
  return is_well_formed(text.text) ? text : well_formed(text);
}

/// One call of encode().
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, std::size_t text_bytes)
      : parts_(parts),
        normalized_(parts.normalizer.growth_limit(text_bytes)),
        cut_(parts.pre_tokenizer.growth_limit(text_bytes)),
        words_(parts.bpe, parts.pre_tokenizer.byte_level(), text_bytes) {}

  std::vector<TokenId> encode(const GuardedText& text) {
    for (const AddedTokens::Stretch& stretch : parts_.added.cut(text, false)) {
      if (stretch.token) {
        tokens_.push_back(*stretch.token);
      } else {
        encode_stretch(text.slice(stretch.begin, stretch.end), stretch.begin == 0);
      }
    }
    return std::move(tokens_);
  }

 private:
  /// Encodes the text between two added tokens.
  void encode_stretch(GuardedText stretch, bool at_start) {
    const GuardedText text = parts_.normalizer.apply(std::move(stretch), normalized_);
    for (const AddedTokens::Stretch& part : parts_.added.cut(text, true)) {
      if (part.token) {
        tokens_.push_back(*part.token);
        continue;
      }
      const std::string_view words =
          std::string_view(text.text).substr(part.begin, part.end - part.begin);
      parts_.pre_tokenizer.cut(words, at_start && part.begin == 0, cut_,
                               [&](std::string_view word) { words_.encode(word, tokens_); });
    }
  }

  const TokenizerParts& parts_;
  GrowthLimit normalized_, cut_;
  Bpe::Run words_;
  std::vector<TokenId> tokens_;
};

}  // namespace

struct Tokenizer::Parts : TokenizerParts {
  using TokenizerParts::TokenizerParts;
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view source,
                               std::string_view tokenizer_config_json,
                               std::string_view config_source) {
  auto parts = std::make_unique<Parts>(read_tokenizer_json(tokenizer_json, source));
  if (!tokenizer_config_json.empty()) parts->read_names(tokenizer_config_json, config_source);
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_tiktoken(std::string_view model, std::string_view source,
                                   std::string_view tokenizer_config_json,
                                   std::string_view config_source) {
  auto parts =
      std::make_unique<Parts>(read_tiktoken(model, source, tokenizer_config_json, config_source));
  parts->read_names(tokenizer_config_json, config_source);
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_gguf(const GgufMetadata& keys) {
  auto parts = std::make_unique<Parts>(tokenizer_of(keys));
  const auto token = [&](const std::string& name) -> std::optional<TokenId> {
    const std::optional<std::int64_t> id = keys.integer("tokenizer.ggml." + name + "_token_id");
    if (!id) return gguf_default_token(keys, name);
    if (*id < 0 || *id >= Vocabulary::ids_max) return std::nullopt;
    const TokenId found{static_cast<std::int32_t>(*id)};
    return parts->contains(found) ? std::optional(found) : std::nullopt;
  };
  parts->bos = token("bos");
  parts->eos = token("eos");
  parts->pad = token("padding");
  return Tokenizer(std::move(parts));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const TextPiece piece{text};
  return encode(std::span(&piece, 1), options);
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextPiece> pieces,
                                       const EncodeOptions& options) const {
  const GuardedText text = join(pieces, options);
  std::vector<TokenId> tokens = Encoding(*parts_, text.text.size()).encode(text);
  if (options.add_special_tokens) parts_->post_processor.apply(tokens);
  return tokens;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special) const {
  PieceDecoder::Run run(parts_->decoder, false);
  std::string text;
  for (const TokenId token : tokens) {
    if (parts_->contains(token) && !(skip_special && parts_->added.is_omitted(token))) {
      run.push(parts_->decoded(token), text);
    }
  }
  run.flush(text);
  return text;
}

std::string Tokenizer::bytes_of(TokenId token) const {
  return parts_->contains(token) ? parts_->decoder.bytes_of(parts_->decoded(token)) : std::string();
}

std::int32_t Tokenizer::size() const {
  return std::max(parts_->vocabulary.size(), parts_->added.vocabulary().size());
}

std::string_view Tokenizer::piece(TokenId token) const { return parts_->piece(token); }

std::optional<TokenId> Tokenizer::find(std::string_view piece) const { return parts_->find(piece); }

bool Tokenizer::is_special(TokenId token) const { return parts_->added.is_special(token); }
std::optional<TokenId> Tokenizer::bos() const { return parts_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return parts_->eos; }
std::optional<TokenId> Tokenizer::pad() const { return parts_->pad; }

struct TextStream::Run {
  const TokenizerParts& parts;
  bool skip_special;
  PieceDecoder::Run decoder;
};

TextStream::TextStream(const Tokenizer& tokenizer, bool skip_special)
    : run_(std::make_unique<Run>(Run{*tokenizer.parts_, skip_special,
                                     PieceDecoder::Run(tokenizer.parts_->decoder, true)})) {}

TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;
TextStream::~TextStream() = default;

std::string TextStream::push(TokenId token) {
  std::string text;
  const TokenizerParts& parts = run_->parts;
  if (parts.contains(token) && !(run_->skip_special && parts.added.is_omitted(token))) {
    run_->decoder.push(parts.decoded(token), text);
  }
  return text;
}

std::string TextStream::flush() {
  std::string text;
  run_->decoder.flush(text);
  return text;
}

}  // namespace hyb
