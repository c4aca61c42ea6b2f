#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/text/added_tokens.h"
#include "core/text/bpe.h"
#include "core/text/decoder.h"
#include "core/text/normalizer.h"
#include "core/text/pre_tokenizer.h"
#include "core/text/tokenizer_json.h"
#include "core/text/vocabulary.h"

namespace hyb {

/// Adds tokens before and after those of a raw prompt: the `post_processor` of a tokenizer.json,
/// for a single text.
class PostProcessor {
 public:
  using Exists = std::function<bool(TokenId)>;

  /// A null `json` adds nothing. `exists` is true for the ids of the vocabulary. Throws
  /// Error(model) that begins with `where`.
  PostProcessor(const Json& json, const std::string& where, const Exists& exists);

  void apply(std::vector<TokenId>& tokens) const;

 private:
  void read(const Json& json, const std::string& where, const Exists& exists, int depth);
  void read_template(const Json& json, const std::string& where, const Exists& exists);
  void read_pair(const Json& json, const std::string& where, const Exists& exists);

  std::vector<TokenId> before_;
  std::vector<TokenId> after_;
};

/// Everything a tokenizer.json describes, checked. Does not move: its parts refer to each other.
struct TokenizerParts {
  /// Throws Error(model) for what is damaged or not supported.
  explicit TokenizerParts(TokenizerFile file);
  TokenizerParts(const TokenizerParts&) = delete;
  TokenizerParts& operator=(const TokenizerParts&) = delete;

  /// Takes bos, eos and pad from a tokenizer_config.json. Throws Error(model).
  void read_names(std::string_view tokenizer_config_json, std::string_view source);

  bool contains(TokenId token) const;
  std::string_view piece(TokenId token) const;    ///< of an added token, else of the vocabulary
  std::string_view decoded(TokenId token) const;  ///< the piece to feed to the decoder
  std::optional<TokenId> find(std::string_view piece) const;

  Vocabulary vocabulary;  // the model's
  Bpe bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  AddedTokens added;
  PostProcessor post_processor;
  PieceDecoder decoder;
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> pad;
};

}  // namespace hyb
