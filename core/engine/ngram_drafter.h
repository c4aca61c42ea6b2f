#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/engine/drafter.h"

namespace hyb {

/// A text of tokens that only grows, and where the tokens at its end were before. Appending takes
/// constant time per token, a search is bounded: the length of the text makes no difference.
class NgramIndex {
 public:
  /// Fewer equal tokens say too little about the next one.
  static constexpr std::int32_t match_min = 3;

  void append(std::span<const TokenId> tokens);
  /// Ends the text so far: what is appended next does not continue it, and no draft spans both.
  void append_break();

  /// Up to `most` tokens that followed the longest of the latest places where the text has the same
  /// `match_min` tokens or more as at its end.
  void draft(std::int32_t most, std::vector<TokenId>& drafts) const;

  /// The same, and as `others` up to `count` more: what followed other places, the longest match
  /// first, of two as long the latest. None of them begins with all of another one.
  void draft(std::int32_t most, std::int32_t count, std::vector<TokenId>& drafts,
             std::vector<std::vector<TokenId>>& others) const;

  /// Returns whether draft() may find something after one more token.
  bool may_draft_after_next() const;

 private:
  static constexpr std::int32_t match_max = 32;  ///< longer matches are as good
  static constexpr std::int32_t looks_max = 16;  ///< places compared in one search

  void push(TokenId token);
  void link(std::size_t place);
  void resize(std::size_t tokens);
  std::size_t bucket(std::size_t end, std::int32_t count) const;
  std::int32_t matching(std::size_t place) const;
  void read(std::int32_t place, std::int32_t most, std::vector<TokenId>& drafts) const;

  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> latest_;    ///< by the tokens before it: a place in the text; -1: none
  std::vector<std::int32_t> previous_;  ///< by place: the one before it in the same bucket
  std::vector<bool> pairs_;             ///< by two tokens: a place has them and one more before it
};

/// Drafts from what a sequence, and sequences before it, had after the same tokens: free, and good
/// where answers repeat text, as in edits and code.
class NgramDrafter final : public Drafter {
 public:
  /// Returns what others had after the known tokens of a sequence; empty: nothing.
  using Remembered = std::function<std::vector<TokenId>(std::span<const TokenId>)>;
  explicit NgramDrafter(Remembered remembered) : remembered_(std::move(remembered)) {}

  void draft(std::span<DraftJob> jobs) override;
  bool may_draft_after_next(const ArrivalOrder& sequence, std::span<const TokenId> tokens) override;
  void forget(const ArrivalOrder& sequence) override { texts_.erase(sequence); }

 private:
  struct Text {
    NgramIndex index;
    std::size_t known = 0;  ///< tokens of the sequence in it
  };
  NgramIndex& index_of(const ArrivalOrder& sequence, std::span<const TokenId> tokens);

  Remembered remembered_;
  std::map<ArrivalOrder, Text> texts_;
};

}  // namespace hyb
