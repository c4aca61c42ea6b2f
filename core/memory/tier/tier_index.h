#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/io/storage.h"
#include "core/io/transfer_queue.h"
#include "core/memory/pool/layout.h"
#include "core/memory/pool/memory_pool.h"
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

/// The index of a tier: which snapshots it has, by token ids that are compared on every hit, and
/// which units they share. Knows kinds through MemoryKind alone. Moves no bytes.
class TierIndex {
 public:
  /// The kinds that the layout names outlive the index.
  explicit TierIndex(const MemoryLayout& layout);
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

  /// In the order of units_of(checkpoint).
  std::vector<StoredUnit*> units(TierEntry& entry) const;

  /// The tokens that lead to an entry.
  std::vector<TokenId> key(const TierEntry& entry) const;
  /// The nearest entry above; null: there is none.
  const TierEntry* above(const TierEntry& entry) const;

  /// Returns whether all units are stored.
  static bool is_whole(std::span<StoredUnit* const> units);

  /// Removes the entry; `frees` is called for every stored unit that no entry needs any more.
  void remove(TierEntry& entry, const std::function<void(StoredUnit&)>& frees);

  /// Sets its position in the order of removal.
  void rank(TierEntry& entry, double value);
  /// The entry to remove first, except `keep`; null: there is none.
  TierEntry* first(const TierEntry* keep) const;

  std::size_t entries() const { return by_rank_.size(); }
  std::size_t nodes() const { return nodes_; }
  /// An estimate of the memory of the index.
  std::size_t bytes() const;

  /// Throws when users, ranks or nodes are not what they should be: our own bug.
  void audit() const;

 private:
  const TierNode* walk(std::span<const TokenId> key) const;
  TierNode& grow(std::span<const TokenId> key);
  void prune(TierNode* node);
  TierEntry* deepest(const TierNode& node, std::span<const TokenId> key) const;
  void collect(const TierNode* node, TierEntry* entry, TierHit& hit) const;

  MemoryLayout layout_;
  std::int32_t page_tokens_;  ///< a model without attention: tokens per node
  TierNode root_;
  std::map<std::pair<double, std::uint64_t>, TierEntry*> by_rank_;
  std::uint64_t ranked_ = 0;
  std::size_t nodes_ = 0;
};

}  // namespace hyb
