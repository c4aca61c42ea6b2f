#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// Remembers the ids of the words of one text: most words come again. Bounded: what does not fit
/// replaces what was there.
class WordMemo {
 public:
  /// Sized for a text of so many bytes: nothing for short ones, a few MB at most.
  explicit WordMemo(std::size_t text_bytes);

  struct Key {
    std::uint64_t hash;
    bool usable;
  };

  /// `kind` tells apart what encodes the same word differently.
  Key key(std::string_view word, std::uint32_t kind) const;

  /// The ids of the word, until the next put(); empty where it is not known. (A word without ids is
  /// never remembered.)
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

}  // namespace hyb
