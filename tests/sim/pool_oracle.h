#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/memory/memory.h"
#include "tests/sim/random.h"

namespace hyb::sim {

/// The first `sinks` positions for ever and the last `window`: a kind that only tests know.
class SinkWindow final : public MemoryKind {
 public:
  SinkWindow(std::int32_t sinks, std::int32_t window) : sinks_(sinks), window_(window) {}
  std::string_view name() const override { return "sink"; }
  bool needs(PositionRange positions, std::int32_t length) const override {
    if (positions.first >= length) return false;
    return positions.first < sinks_ || window_.needs(positions, length);
  }

 private:
  std::int32_t sinks_;
  SlidingWindow window_;
};

/// A layout of random sizes over all kinds of layer memory, and its kinds.
struct RandomLayout {
  explicit RandomLayout(Random& random);
  std::vector<std::unique_ptr<MemoryKind>> kinds;
  MemoryLayout layout;
};

/// What a sequence is to find in its memory: after each token a number that all tokens before it
/// have a part in.
using History = std::vector<std::uint64_t>;

/// The bytes behind a pool, as numbers: every position of every page, and what every slot holds.
/// Carries out orders, loses what a superblock held when it changes its owner, and compares what a
/// sequence reads with its history.
class ToyStore {
 public:
  explicit ToyStore(const MemoryLayout& layout);

  void carry_out(const std::vector<Order>& orders);

  /// Everything that the kinds need at the length is where the tables and slots say. Throws.
  void check(const MemoryPool& pool, std::span<const PageTable> tables,
             const History& history) const;
  void check_slot(SlotId slot, const History& history) const;
  void check_packed(PackedId packed, const History& history) const;

  /// Runs so many tokens more: writes the span's positions and the write slot.
  void run(const Memory& memory, const History& after, std::int32_t tokens);
  /// Fills a vacant checkpoint.
  void fill(const Checkpoint& checkpoint, const History& history);

 private:
  /// A slot holds the numbers of its last span, so that fewer tokens may be kept.
  using Slot = std::map<std::int32_t, std::uint64_t>;

  std::uint64_t& at(std::int32_t group, PageId page, std::int32_t offset);
  const std::uint64_t& at(std::int32_t group, PageId page, std::int32_t offset) const {
    return const_cast<ToyStore*>(this)->at(group, page, offset);
  }
  Slot& slot(std::int32_t unit);
  Slot& packed(std::int32_t unit);
  void own(ViewId view, std::int32_t unit) const;
  void change_owner(const ChangeOwner& change);

  MemoryLayout layout_;
  std::vector<std::vector<std::uint64_t>> pages_;
  std::vector<Slot> slots_, packed_;
  std::vector<ViewId> owners_;
};

}  // namespace hyb::sim
