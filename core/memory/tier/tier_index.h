#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/io/storage.h"
#include "core/io/transfer_queue.h"
#include "core/memory/pool/layout.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefill_cost.h"
#include "core/memory/prefix/prefix_tree.h"

namespace hyb {

/// A page or a slot in a tier, and how many entries use it.
struct StoredUnit {
  ViewId view;
  std::int32_t page = 0;          ///< of the sequence, for a view of pages; else 0
  std::vector<Extent> extents{};  ///< of the storage; empty: not there (yet)
  TransferId written{};           ///< by this transfer, where there are extents
  std::int32_t users = 0;         ///< entries that need it
};

struct TierNode;

/// A snapshot in a tier.
struct TierEntry {
  TierNode* node = nullptr;   ///< of its last full page
  std::vector<TokenId> tail;  ///< tokens after that page
  std::int32_t length = 0;    ///< tokens that lead to it
  Precision precision = Precision::exact;
  SnapshotPlace place = SnapshotPlace::branch;
  double worth = 0;                         ///< seconds saved per byte
  std::pair<double, std::uint64_t> rank{};  ///< the smallest is removed first
  StoredUnit state;                         ///< slot or packed snapshot
  std::vector<StoredUnit> last_page;        ///< per group: the partly filled one
};

/// The tokens of one full page after another's. Keys and values depend on the tokens up to its end
/// alone, so all entries below share them.
struct TierNode {
  TierNode* parent = nullptr;
  const std::vector<TokenId>* tokens = nullptr;  ///< of this page; the key in the parent's map
  std::int32_t pages = 0;                        ///< from the root to the end of this one
  std::vector<StoredUnit> groups;                ///< this page of every group
  std::map<std::vector<TokenId>, std::unique_ptr<TierNode>> children;
  std::vector<std::unique_ptr<TierEntry>> entries;
};

/// Lists what a tier has of a prompt: the units of a checkpoint of `length` tokens.
struct TierHit {
  std::int32_t length = 0;
  Precision precision = Precision::exact;
  SnapshotPlace place = SnapshotPlace::branch;
  TierEntry* entry = nullptr;  ///< null: a part of one, from a model without recurrent layers
  std::vector<StoredUnit*> units{};
};

/// Speed of reading a host tier, with which it is decided what is worth reading.
inline constexpr double host_tier_bytes_per_second = 1e10;

struct TierLimits {
  std::uint64_t budget_bytes = 0;                       ///< of the storage; never passed
  std::size_t index_bytes_max = std::size_t{64} << 20;  ///< memory for the index
  PrefillCost cost = default_prefill_cost;              ///< of this model on this machine
  /// Speed of reading. A snapshot that is computed faster than read is not kept.
  double bytes_per_second = 1e9;
};

/// The index of a tier: which snapshots it has, by token ids that are compared on every hit, which
/// units they share, where in the storage these are, and which snapshots are worth their bytes.
/// Knows kinds through MemoryKind alone. Moves no bytes.
class TierIndex {
 public:
  /// The kinds that the layout names outlive the index.
  TierIndex(const MemoryLayout& layout, const TierLimits& limits);
  ~TierIndex();

  /// The entry at the end of the key; null: there is none.
  TierEntry* find(std::span<const TokenId> key, Precision precision) const;

  /// The deepest position of the prompt, up to `limit`, of which all units are there. Units of the
  /// hit are valid until the index changes.
  TierHit match(std::span<const TokenId> prompt, std::int32_t limit) const;

  /// Leading tokens of the prompt that an entry has too, in whole pages.
  std::int32_t known(std::span<const TokenId> prompt) const;

  /// A new entry that uses its units; those that are not stored yet have no extents. There is none
  /// at the end of the key yet.
  TierEntry& add(std::span<const TokenId> key, Precision precision, SnapshotPlace place);

  /// Gives the units of an entry that have no extents theirs, and removes less valuable entries
  /// for it. False: it is computed faster than read, or not worth the others; it has been removed.
  bool admit(TierEntry& entry);
  /// The entry was used: others are removed before it.
  void touch(TierEntry& entry);
  void remove(TierEntry& entry);
  /// The bytes of a unit are not there: no entry that needs it is whole any more.
  void forget(StoredUnit& unit);

  /// In the order of units_of(checkpoint).
  std::vector<StoredUnit*> units(TierEntry& entry) const;
  /// Returns whether all units are stored.
  static bool is_whole(std::span<StoredUnit* const> units);
  std::uint64_t bytes_of(std::span<StoredUnit* const> units) const;

  /// Units of a hit that are to be read when the pool has the first `shared` tokens already. Null:
  /// computing the hit from the first `resumable` tokens on is faster.
  std::optional<std::vector<StoredUnit*>> worth_reading(const TierHit& hit, std::int32_t shared,
                                                        std::int32_t resumable) const;

  /// From now on prefill costs this.
  void set_cost(const PrefillCost& cost) { limits_.cost = cost; }

  std::size_t entries() const { return by_rank_.size(); }
  std::size_t nodes() const { return nodes_; }
  std::int64_t evicted() const { return evicted_; }  ///< entries removed for others
  std::uint64_t bytes_used() const;                  ///< of the storage
  /// An estimate of the memory of the index.
  std::size_t bytes() const;

  /// Throws when users, extents, ranks or nodes are not what they should be: our own bug.
  void audit() const;

 private:
  const TierNode* walk(std::span<const TokenId> key) const;
  TierNode& grow(std::span<const TokenId> key);
  void prune(TierNode* node);
  TierEntry* deepest(const TierNode& node, std::span<const TokenId> key) const;
  void collect(const TierNode* node, TierEntry* entry, TierHit& hit) const;
  std::vector<TokenId> key(const TierEntry& entry) const;
  const TierEntry* above(const TierEntry& entry) const;
  std::uint32_t sectors_of(const StoredUnit& unit) const;
  bool is_faster_read(std::uint64_t bytes, std::int32_t length, std::int32_t resumable) const;
  void rank(TierEntry& entry, double value);
  void rank_by_worth(TierEntry& entry);
  bool make_room(TierEntry& entry);

  MemoryLayout layout_;
  TierLimits limits_;
  Extents extents_;
  std::int32_t page_tokens_;  ///< a model without attention: tokens per node
  TierNode root_;
  std::map<std::pair<double, std::uint64_t>, TierEntry*> by_rank_;
  std::uint64_t ranked_ = 0;
  double level_ = 0;  ///< of Greedy-Dual, as in Eviction
  std::int64_t evicted_ = 0;
  std::size_t nodes_ = 0;
};

}  // namespace hyb
