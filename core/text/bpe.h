#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/base/ids.h"
#include "core/text/merge_table.h"
#include "core/text/tokenizer_json.h"
#include "core/text/vocabulary.h"
#include "core/text/word_memo.h"

namespace hyb {

/// Byte-pair encoding of words: every character is a symbol, neighbouring symbols merge in the
/// order of the file's list until none can.
class Bpe {
 public:
  /// The fields of `model` and the merges of the file, over the file's vocabulary, which has to
  /// outlive the model and stay where it is. Throws Error(model).
  Bpe(const TokenizerFile& file, const Vocabulary& vocabulary);

  /// Encodes the words of one text. Not to be shared by threads.
  class Run {
   public:
    /// `byte_level`: words are bytes, each of which stands for its character (see byte_level.h).
    /// `text_bytes` sizes the memo of words.
    Run(const Bpe& model, bool byte_level, std::size_t text_bytes);

    void encode(std::string_view word, std::vector<TokenId>& out);

    /// The same for a word of characters by the definition: no cuts, no memo, merges always.
    void encode_uncut(std::string_view word, std::vector<TokenId>& out);

   private:
    void encode_characters(std::string_view word, std::vector<TokenId>& out);
    std::size_t part_end(std::string_view word, std::size_t begin) const;

    const Bpe& model_;
    bool byte_level_;
    WordMemo memo_;
    std::vector<TokenId> symbols_;
  };

 private:
  static constexpr std::int32_t no_token = -1;

  void read_merges(const TokenizerFile& file);
  void read_characters();
  void read_byte_tokens();

  /// The word's own token, where the file says that it comes before any merge.
  std::optional<TokenId> whole(std::string_view word, bool byte_level) const;
  std::optional<TokenId> character(char32_t code_point) const;
  void add_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  void add_byte_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  bool add_byte_tokens(std::string_view character, std::vector<TokenId>& symbols) const;
  bool may_join(char32_t left, char32_t right) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  bool ignore_merges_ = false;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  std::optional<TokenId> unknown_;
  std::vector<std::int32_t> characters_;                // by code point of plane 0
  std::array<std::int32_t, 256> byte_tokens_{};         // <0x00> to <0xFF>
  std::array<std::int32_t, 256> byte_level_symbols_{};  // the piece of each byte's character
  bool byte_level_complete_ = false;
  // Last and first characters of the two sides of every merge: no merge joins others.
  std::unordered_set<std::uint64_t> joins_;
};

}  // namespace hyb
