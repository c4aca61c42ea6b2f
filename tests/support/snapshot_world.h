#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/memory/prefix/snapshot_io.h"
#include "tests/support/byte_runner.h"

namespace hyb::testing {

/// A kind that the product does not know: the first four positions for ever, and the last eight.
class FirstAndLast final : public MemoryKind {
 public:
  std::string_view name() const override { return "first_and_last"; }
  bool needs(PositionRange positions, std::int32_t length) const override {
    if (positions.first >= length) return false;
    return positions.first < 4 || positions.last > length - 8;
  }
};

struct WorldShape {
  std::int32_t superblocks = 64;
  bool has_pages = true, has_slots = true, only_full = false;
  std::size_t padding_bytes = 0;  ///< of slots and packed snapshots
  std::size_t draft_bytes = 0;    ///< at the end of what every unit uses
};

inline MemoryLayout world_layout(const WorldShape& shape) {
  static const FullAttention full_attention;
  static const SlidingWindow sliding_window(10);
  static const ChunkedAttention chunked_attention(12);
  static const FirstAndLast first_and_last;
  constexpr std::size_t superblock_bytes = 16384;
  const auto count = [](std::size_t bytes) {
    return static_cast<std::int32_t>(superblock_bytes / bytes);
  };
  MemoryLayout layout;
  layout.superblock_bytes = superblock_bytes;
  layout.superblocks = shape.superblocks;
  const auto add = [&](const MemoryKind& kind, std::size_t bytes) {
    layout.groups.push_back({.kind = &kind,
                             .page_bytes = bytes + shape.draft_bytes,
                             .pages_per_superblock = count(bytes + shape.draft_bytes)});
  };
  if (shape.has_pages) {
    layout.page_tokens = 4;
    add(full_attention, 96);
    if (!shape.only_full) {
      add(sliding_window, 4100);
      add(chunked_attention, 200);
      add(first_and_last, 160);
    }
  }
  if (shape.has_slots) {
    const auto slot = [&](std::size_t bytes) {
      bytes += shape.padding_bytes + shape.draft_bytes;
      return SlotShape{
          .bytes = bytes, .per_superblock = count(bytes), .padding_bytes = shape.padding_bytes};
    };
    layout.slots = slot(5000);
    layout.packed = slot(1300);
  }
  return layout;
}

/// The pools, the prefix tree and the bytes of a process without a model. What a unit has to hold
/// follows from the tokens alone.
struct SnapshotWorld {
  explicit SnapshotWorld(const WorldShape& shape = {})
      : layout(world_layout(shape)),
        runner(layout),
        pool(layout),
        cache(pool, PrefixCacheOptions{}),
        snapshot_io(pool, runner, cache, [this] { carry_out_orders(); }) {
    if (shape.draft_bytes == 0) return;
    snapshot_io.set_draft_bytes(std::vector(layout.groups.size() + 2, shape.draft_bytes));
  }

  void carry_out_orders() {
    Step step;
    step.orders = pool.take_orders();
    runner.run(step);
  }

  /// What the unit holds in a checkpoint at the end of the key.
  std::vector<std::byte> wanted(std::span<const TokenId> key, const CheckpointUnit& unit) const {
    if (static_cast<std::size_t>(index(unit.view)) < layout.groups.size()) {
      const auto end = static_cast<std::size_t>((unit.page + 1) * layout.page_tokens);
      key = key.first(std::min(key.size(), end));
    }
    std::uint64_t hash = 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(index(unit.view));
    const auto stir = [&](std::uint64_t value) {
      hash = (hash ^ value) * 0xBF58476D1CE4E5B9U;
      hash ^= hash >> 29;
    };
    for (const TokenId token : key) stir(static_cast<std::uint64_t>(index(token)) + 1);
    std::vector<std::byte> bytes(layout.unit_bytes(unit.view));
    const std::size_t content = layout.content_bytes(unit.view);
    for (std::size_t i = 0; i < content; i += sizeof(hash)) {
      stir(i);
      std::memcpy(bytes.data() + i, &hash, std::min(sizeof(hash), content - i));
    }
    return bytes;
  }

  /// Puts a snapshot into the tree. False: there is one already, or no room.
  bool put(std::span<const TokenId> key, Precision precision = Precision::exact) {
    if (snapshot_io.has(key)) return false;
    std::optional<Reservation> room = snapshot_io.make_room(key, precision);
    if (!room) return false;
    snapshot_io.flush_orders();
    for (const CheckpointUnit& unit : units_of(room->checkpoint, layout)) {
      snapshot_io.write(unit, wanted(key, unit));
    }
    return snapshot_io.adopt(key, std::move(room->checkpoint), SnapshotPlace::branch);
  }

  /// Whether every unit of a snapshot holds what it has to.
  bool is_right(const Snapshot& snapshot) {
    snapshot_io.flush_orders();
    const std::vector<TokenId> key = PrefixTree::key(snapshot);
    for (const CheckpointUnit& unit : units_of(snapshot.checkpoint, layout)) {
      std::vector<std::byte> bytes(layout.unit_bytes(unit.view));
      snapshot_io.read(unit, bytes);
      if (bytes != wanted(key, unit)) return false;
    }
    return true;
  }
  bool all_right() {
    for (const Snapshot* snapshot : cache.tree().snapshots()) {
      if (!is_right(*snapshot)) return false;
    }
    return true;
  }
  const Snapshot* at(std::span<const TokenId> key) const {
    return cache.tree().neighborhood(key).here;
  }
  void evict_all() {
    while (cache.evict()) {
    }
  }

  MemoryLayout layout;
  ByteRunner runner;
  MemoryPool pool;
  PrefixCache cache;
  SnapshotIo snapshot_io;
};

/// Keys that share prefixes: a key goes on from a prefix of an earlier one.
class BranchingKeys {
 public:
  explicit BranchingKeys(unsigned seed) : random_(seed) {}

  std::vector<TokenId> next() {
    std::vector<TokenId> key;
    if (!keys_.empty() && random_() % 4 != 0) {
      key = keys_[random_() % keys_.size()];
      key.resize(random_() % (key.size() + 1));
    }
    for (std::uint32_t n = 1 + random_() % 30; n > 0; --n) {
      key.push_back(TokenId{static_cast<std::int32_t>(random_() % 3)});
    }
    keys_.push_back(key);
    return key;
  }
  const std::vector<TokenId>& any() { return keys_[random_() % keys_.size()]; }
  std::uint32_t number(std::uint32_t below) {
    return static_cast<std::uint32_t>(random_() % below);
  }

 private:
  std::mt19937 random_;
  std::vector<std::vector<TokenId>> keys_;
};

}  // namespace hyb::testing
