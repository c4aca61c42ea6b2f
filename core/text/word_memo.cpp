#include "core/text/word_memo.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

namespace hyb {
namespace {

constexpr std::size_t text_bytes_min = 256;
constexpr std::size_t slots_max = 1 << 16;
constexpr std::size_t word_bytes_max = 48;
constexpr std::size_t words_bytes_max = 4 << 20;

}  // namespace

WordMemo::WordMemo(std::size_t text_bytes) {
  if (text_bytes < text_bytes_min) return;
  slots_.resize(std::bit_ceil(std::min(text_bytes / 4, slots_max)));
}

WordMemo::Key WordMemo::key(std::string_view word, std::uint32_t kind) const {
  if (slots_.empty() || word.size() > word_bytes_max) return {0, false};
  return {XXH3_64bits_withSeed(word.data(), word.size(), kind), true};
}

std::span<const TokenId> WordMemo::find(Key key, std::string_view word) const {
  if (!key.usable) return {};
  const Slot& slot = slots_[slot_of(key)];
  if (slot.tokens == 0 || slot.hash != key.hash || slot.word_bytes != word.size() ||
      std::string_view(words_).substr(slot.word_begin, slot.word_bytes) != word) {
    return {};
  }
  return std::span(tokens_).subspan(slot.tokens_begin, slot.tokens);
}

void WordMemo::put(Key key, std::string_view word, std::span<const TokenId> tokens) {
  if (!key.usable || tokens.empty()) return;
  if (words_.size() + word.size() > words_bytes_max) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    words_.clear();
    tokens_.clear();
  }
  slots_[slot_of(key)] = {key.hash, static_cast<std::uint32_t>(words_.size()),
                          static_cast<std::uint32_t>(tokens_.size()),
                          static_cast<std::uint16_t>(word.size()),
                          static_cast<std::uint16_t>(tokens.size())};
  words_.append(word);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

}  // namespace hyb
