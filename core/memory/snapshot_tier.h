#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/storage.h"
#include "core/memory/prefill_cost.h"
#include "core/memory/snapshot_carrier.h"
#include "core/memory/tier_index.h"

namespace hyb {

struct TierOptions {
  std::uint64_t budget_bytes = 0;  ///< of the storage; never passed
  PrefillCost cost{};              ///< of this model on this machine
  /// At which bytes come back. A snapshot that is computed faster than read is not kept.
  double bytes_per_second = 1e9;
  std::size_t index_bytes_max = std::size_t{64} << 20;  ///< memory for the books
};

struct TierStats {
  std::int64_t spilled = 0;   ///< snapshots that were written
  std::int64_t held = 0;      ///< evicted ones that were there already
  std::int64_t declined = 0;  ///< not worth their bytes, or without them yet
  std::int64_t fetched = 0, tokens_fetched = 0;
  std::int64_t removed = 0;  ///< gave way to others
  std::int64_t damaged = 0;  ///< pages and slots that came back with other bytes: dropped
  std::uint64_t bytes_written = 0, bytes_read = 0;
  std::uint64_t bytes_used = 0;  ///< of the storage, now
};

/// Keeps snapshots with their keys and values outside the pool: written when the prefix tree evicts
/// them, brought back when a prompt begins with their tokens. Pages that several of them share are
/// stored once. One kind of storage makes it the disk tier, another the host tier.
///
/// A storage that fails switches the tier off, with one warning; nothing but the tier is lost.
/// Bytes that come back changed cost the one snapshot.
class SnapshotTier {
 public:
  /// `name` is for messages, such as "disk tier".
  SnapshotTier(std::string name, const SnapshotCarrier& carrier, std::unique_ptr<Storage> storage,
               const TierOptions& options);

  /// Keeps a snapshot that is about to be evicted; takes as long as the writing. Never has the
  /// runner run: a snapshot whose bytes are still to be made by an order is not kept.
  void spill(std::span<const TokenId> key, const Snapshot& snapshot);

  /// Brings back the deepest snapshot that the prompt begins with and that leaves at least one
  /// token of it, when that is deeper than `resumable` tokens and faster than to compute it. It is
  /// in the prefix tree then. Other snapshots may be evicted for it. Returns its length; 0: there
  /// was none, or no room. Throws what carrying out orders throws.
  std::int32_t fetch(std::span<const TokenId> prompt, std::int32_t resumable);

  bool is_on() const { return storage_ != nullptr; }
  TierStats stats() const;
  /// Memory that the books take; an estimate.
  std::size_t index_bytes() const { return index_ ? index_->bytes() : 0; }
  void audit() const;

 private:
  std::uint32_t sectors_of(const TierUnit& unit) const;
  std::uint64_t bytes_of(std::span<const TierUnit> units, std::int32_t tokens) const;
  bool make_room(TierEntry& entry);
  void remove(TierEntry& entry);
  void rank(TierEntry& entry);
  bool store(const TierUnit& unit, std::span<const std::byte> bytes);
  enum class Loaded : std::uint8_t { whole, damaged, failed };
  Loaded load(const TierUnit& unit, std::span<std::byte> bytes);
  Loaded fill(const TierHit& hit, const SnapshotRoom& room);
  std::span<std::byte> buffer(ViewId view);
  void switch_off(std::string_view why);

  std::string name_;
  SnapshotCarrier carrier_;
  std::unique_ptr<Storage> storage_;  ///< null: switched off
  TierOptions options_;
  Extents extents_;
  std::optional<TierIndex> index_;
  double level_ = 0;  ///< of Greedy-Dual, as in Eviction
  std::vector<std::byte> buffer_;
  TierStats stats_;
};

}  // namespace hyb
