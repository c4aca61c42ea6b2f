#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/memory/orders.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"

namespace hyb {

/// Room in the pool for a checkpoint that is filled from outside.
struct Reservation {
  Checkpoint checkpoint;
  /// Per unit of units_of(checkpoint): it is shared with a snapshot in the tree, whose bytes it
  /// has.
  std::vector<bool> is_shared;
};

/// A checkpoint that is filled, or read, while steps run: its units stay where they are.
class PinnedCheckpoint {
 public:
  PinnedCheckpoint(MemoryPool& pool, Checkpoint checkpoint)
      : pool_(&pool), checkpoint_(std::move(checkpoint)) {
    pool_->pin(checkpoint_);
  }
  ~PinnedCheckpoint() { unpin(); }
  PinnedCheckpoint(const PinnedCheckpoint&) = delete;
  PinnedCheckpoint& operator=(const PinnedCheckpoint&) = delete;

  const Checkpoint& checkpoint() const { return checkpoint_; }
  /// Nothing is read or written beside steps any more; all units have their bytes.
  Checkpoint take() {
    unpin();
    return std::move(checkpoint_);
  }

 private:
  void unpin() {
    if (pool_ != nullptr) std::exchange(pool_, nullptr)->unpin(checkpoint_);
  }

  MemoryPool* pool_;
  Checkpoint checkpoint_;
};

/// Reads and writes the bytes of snapshots in the pool, between steps.
class SnapshotIo {
 public:
  /// All outlive this object. `carry_out` has the runner carry out the pool's open orders, as a
  /// step without spans does; what it throws is passed on by flush_orders().
  SnapshotIo(MemoryPool& pool, UnitBytes& bytes, PrefixCache& cache,
             std::function<void()> carry_out)
      : pool_(&pool), bytes_(&bytes), cache_(&cache), carry_out_(std::move(carry_out)) {}

  const MemoryLayout& layout() const { return pool_->layout(); }
  const PrefixCache& cache() const { return *cache_; }

  /// Bytes at the end of the used ones of a view's units that only guesses depend on, by view. Not
  /// set: there are none.
  void set_draft_bytes(std::vector<std::size_t> bytes);
  /// The used bytes of a unit that answers depend on, which come first.
  std::size_t answer_bytes(ViewId view) const;

  /// Has open orders carried out: before that a unit may have the bytes of its last owner, and what
  /// is written to it may be overwritten.
  void flush_orders();

  /// Returns whether all units have their bytes: none waits for an order.
  bool has_bytes(const Checkpoint& checkpoint) const;

  /// `bytes` has the size of the unit. The unit has its bytes.
  void read(const CheckpointUnit& unit, std::span<std::byte> bytes) const;
  /// Does what UnitBytes::start_read does. The unit has its bytes.
  std::unique_ptr<PendingBytes> start_read(const CheckpointUnit& unit) const;
  /// After flush_orders().
  void write(const CheckpointUnit& unit, std::span<const std::byte> bytes);

  bool can_stage_writes() const { return bytes_->can_stage_writes(); }
  std::unique_ptr<StagedWrite> stage_write(ViewId view) const;
  /// After flush_orders(): the room is for units that are then written beside steps.
  std::unique_ptr<PinnedCheckpoint> pin(Reservation room) const;

  /// Leading tokens of the key whose full pages room(key) would share.
  std::int32_t shared_tokens(std::span<const TokenId> key) const;
  /// The same, with the snapshot that has them. Valid until the tree changes.
  SharedPrefix shared(std::span<const TokenId> key) const;

  /// Allocates a checkpoint at the end of the key; full pages that a snapshot in the tree has, or
  /// `other` if that has more, are shared. Empty: the pool is dry, or has no snapshots of that
  /// precision.
  std::optional<Reservation> room(std::span<const TokenId> key, Precision precision,
                                  const SharedPrefix& other = {});
  /// The same, where these pages alone are shared.
  std::optional<Reservation> room_with(std::span<const TokenId> key, Precision precision,
                                       const SharedPrefix& base);

  /// Returns whether there is a snapshot at the end of the key.
  bool has(std::span<const TokenId> key) const;

  /// room(), for which other snapshots are evicted. Empty: nothing is left to evict.
  std::optional<Reservation> make_room(std::span<const TokenId> key, Precision precision,
                                       const SharedPrefix& other = {});

  /// Evicts the snapshot of least value, but not the one that room(key) would share pages with.
  /// False: there is none.
  bool evict_for(std::span<const TokenId> key);

  /// Puts a checkpoint whose units all have their bytes into the prefix tree. False: there is one
  /// already.
  bool adopt(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place,
             SnapshotSource source = SnapshotSource::memory);

 private:
  MemoryPool* pool_;
  UnitBytes* bytes_;
  PrefixCache* cache_;
  std::function<void()> carry_out_;
  std::vector<std::size_t> draft_bytes_ = {};
};

}  // namespace hyb
