#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

class GgufMetadata;

/// A run of text to encode. Marked text is untrusted (a person, a tool, a file): nothing in it
/// becomes a control token.
struct TextPiece {
  std::string_view text;
  bool marked = false;
  /// Marked text of an assistant message: thinking and tool-call markers may become tokens, turn
  /// and role tokens may not. Ignored when `marked` is false.
  bool allow_thinking_markers = false;
};

struct EncodeOptions {
  bool add_special_tokens = false;  ///< run the post-processor (BOS and the like), for raw prompts
  /// Added tokens spelled in unmarked text become their ids, as in Hugging Face. When false,
  /// unmarked text is treated as marked: plain text.
  bool parse_special = false;
};

/// Text to token ids and back, as tokenizer.json describes it. Immutable and thread-safe.
class Tokenizer {
 public:
  /// Reads the text of a tokenizer.json, and of a tokenizer_config.json if given (only for the
  /// names of bos, eos and pad). `source` names the file in errors. Throws Error(model) for what is
  /// damaged or not supported.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view source,
                             std::string_view tokenizer_config_json = {},
                             std::string_view config_source = "tokenizer_config.json");

  /// The same of a tiktoken.model, whose tokenizer_config.json must be there (tiktoken.h).
  static Tokenizer from_tiktoken(std::string_view model, std::string_view source,
                                 std::string_view tokenizer_config_json,
                                 std::string_view config_source);

  /// The tokenizer of a GGUF file. Throws Error(model) as tokenizer_of() (gguf_tokenizer.h).
  static Tokenizer from_gguf(const GgufMetadata& keys);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Encodes as Hugging Face `tokenizers` does. Each ill-formed UTF-8 sequence (maximal subpart) is
  /// read as U+FFFD. A character that is not in the vocabulary becomes the unknown token if the
  /// file names one, else nothing. Throws Error(model) when a pattern of the file exceeds its match
  /// limits on this text.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const;

  /// Encodes the concatenation of the pieces as one text: words and merges may cross the joins.
  /// Added tokens are recognised only where every byte of the spelling allows it (see TextPiece).
  /// An added token that is not special and spells only white space is plain text in all pieces.
  std::vector<TokenId> encode(std::span<const TextPiece> pieces,
                              const EncodeOptions& options) const;

  /// The text of `tokens`, as Hugging Face decodes it: always well-formed UTF-8. Ids that are not
  /// in the vocabulary decode to nothing. `skip_special` omits special added tokens except the
  /// thinking and tool-call markers (core/text/added_tokens.h): an answer can't be parsed without
  /// them, and only some files mark them as special.
  std::string decode(std::span<const TokenId> tokens, bool skip_special) const;

  /// The bytes of one token within a text: not always well-formed UTF-8, as characters may be
  /// spread over tokens. Nothing for ids that are not in the vocabulary.
  std::string bytes_of(TokenId token) const;

  /// One more than the largest id; there may be holes below it.
  std::int32_t size() const;

  /// The vocabulary's own spelling ("Ġthe", "▁the", "<0x0A>"); empty for holes and ids out of
  /// range. Valid for the lifetime of the tokenizer.
  std::string_view piece(TokenId token) const;

  /// A vocabulary piece or an added token by its exact spelling.
  std::optional<TokenId> find(std::string_view piece) const;

  bool is_special(TokenId token) const;  ///< an added token with special = true

  /// Named by tokenizer_config.json, if that was given and the vocabulary has the token.
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> pad() const;

 private:
  friend class TextStream;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

/// Streaming detokenisation: push ids, get the text that is final so far, in whole characters. All
/// pushes and the flush together equal decode() of all ids, with one exception: for an ill-formed
/// run of byte tokens (<0xNN>), decode() replaces every byte of the run by U+FFFD, as Hugging Face
/// does, and a stream, which has already emitted the valid characters, only the invalid bytes.
class TextStream {
 public:
  /// The tokenizer must outlive the stream.
  explicit TextStream(const Tokenizer& tokenizer, bool skip_special = true);
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;
  ~TextStream();

  std::string push(TokenId token);

  /// The rest: an incomplete character becomes U+FFFD. Resets the stream.
  std::string flush();

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace hyb
