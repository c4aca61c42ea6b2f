#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/base/ids.h"
#include "core/text/tokenizer_json.h"
#include "core/text/vocabulary.h"

namespace hyb {

/// Says which adjacent pairs merge, in which order, into which token.
class MergeTable {
 public:
  using Rank = std::int32_t;
  static constexpr Rank none = INT32_MAX;

  explicit MergeTable(std::size_t merges);

  /// Ranks count up from 0 with every call, `as_before`: but this one, which makes the same token.
  /// A repeated pair takes the later rank.
  void add(TokenId left, TokenId right, TokenId merged, bool as_before = false);

  /// Lower ranks merge first; `none` when the pair does not merge.
  Rank rank(TokenId left, TokenId right) const;

  TokenId merged(Rank rank) const { return merged_[static_cast<std::size_t>(rank)]; }

 private:
  struct Slot {
    std::uint64_t pair = empty;
    Rank rank = none;
  };
  static constexpr std::uint64_t empty = UINT64_MAX;

  std::size_t slot_of(std::uint64_t pair) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
  std::vector<TokenId> merged_;
  std::uint64_t seed_;  // random: hostile files cannot construct colliding pairs
};

/// Merges adjacent `symbols` in place until the table merges none: always the pair of lowest rank,
/// the leftmost of equal ones. O(n log n) time, at most 16 bytes of extra memory per symbol. At
/// most 2^31 - 2 symbols.
void merge_symbols(std::vector<TokenId>& symbols, const MergeTable& table);

/// A bounded cache of encoded words for one text, in which most words repeat. New words replace old
/// ones.
class WordMemo {
 public:
  /// Sized for a text of `text_bytes`: nothing for short ones, a few MB at most.
  explicit WordMemo(std::size_t text_bytes);

  struct Key {
    std::uint64_t hash;
    bool usable;
  };

  /// `kind` distinguishes encodings of the same word.
  Key key(std::string_view word, std::uint32_t kind) const;

  /// The ids of the word, valid until the next put(); empty on a miss. (A word without ids is never
  /// cached.)
  std::span<const TokenId> find(Key key, std::string_view word) const;

  void put(Key key, std::string_view word, std::span<const TokenId> tokens);

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t word_begin = 0;
    std::uint32_t tokens_begin = 0;
    std::uint16_t word_bytes = 0;
    std::uint16_t tokens = 0;  // 0: the slot is free
  };

  std::size_t slot_of(Key key) const { return key.hash & (slots_.size() - 1); }

  std::vector<Slot> slots_;
  std::string words_;
  std::vector<TokenId> tokens_;
};

/// Byte-pair encoding of words: every character is a symbol, adjacent symbols merge in the order of
/// the file's list until none can.
class Bpe {
 public:
  /// Reads `model` and the merges of the file. `vocabulary` is the file's; it must outlive the
  /// model and not move. Throws Error(model).
  Bpe(const TokenizerFile& file, const Vocabulary& vocabulary);

  /// Encodes the words of one text. Not thread-safe.
  class Run {
   public:
    /// `byte_level`: words are bytes, each of which is spelled as its byte-level character (see
    /// vocabulary.h). `text_bytes` sizes the cache of words.
    Run(const Bpe& model, bool byte_level, std::size_t text_bytes);

    void encode(std::string_view word, std::vector<TokenId>& out);

    /// Encodes a word of characters by the definition: no cuts, no cache, always by merges.
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

  /// The word's own token, where the file says that it precedes all merges.
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
  std::array<std::int32_t, 256> byte_level_symbols_{};  // of each byte's character
  bool byte_level_complete_ = false;
  // (last character of the left side, first of the right side) of every merge.
  std::unordered_set<std::uint64_t> joins_;
};

}  // namespace hyb
