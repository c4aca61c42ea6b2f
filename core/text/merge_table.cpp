#include "core/text/merge_table.h"

#include <bit>
#include <random>

namespace hyb {
namespace {

std::uint64_t pair_of(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(index(left)) << 32 | static_cast<std::uint32_t>(index(right));
}

std::uint64_t mixed(std::uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdU;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53U;
  return value ^ (value >> 33);
}

}  // namespace

MergeTable::MergeTable(std::size_t merges)
    : slots_(std::bit_ceil(merges * 2 + 2)), seed_(std::random_device{}()) {
  merged_.reserve(merges);
}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = mixed(pair + seed_) & mask;
  while (slots_[slot].pair != empty && slots_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::add(TokenId left, TokenId right, TokenId merged) {
  const std::uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, static_cast<Rank>(merged_.size())};
  merged_.push_back(merged);
}

MergeTable::Rank MergeTable::rank(TokenId left, TokenId right) const {
  return slots_[slot_of(pair_of(left, right))].rank;
}

}  // namespace hyb
