#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/pool/memory.h"
#include "core/memory/prefix/token_tree.h"

namespace hyb {

/// Why a snapshot was taken where it stands.
enum class SnapshotPlace : std::uint8_t { branch, prompt_end, turn_end, message_end };

inline constexpr std::size_t snapshot_places = 4;

/// Where its bytes were before the prefix tree had them.
enum class SnapshotSource : std::uint8_t { memory, disk, session };

struct Snapshot;
using SnapshotTree = TokenTree<std::unique_ptr<Snapshot>>;
using PrefixNode = SnapshotTree::Node;

/// A checkpoint in the tree and what eviction knows of it.
struct Snapshot {
  Checkpoint checkpoint;
  SnapshotPlace place = SnapshotPlace::branch;
  SnapshotSource source = SnapshotSource::memory;  ///< memory, once a sequence resumed from it
  bool used = false;                               ///< a later request resumed from it
  bool continued = false;        ///< the same, and what came of it is still in the tree
  double value = 0;              ///< smallest goes first
  double worth = 0;              ///< of the value, what it had by itself when that was set
  std::uint64_t added = 0;       ///< of equal values the one added first goes first
  std::int32_t pinned = 0;       ///< n: the n-th that somebody waits for; 0: nobody is known to
  std::int32_t heap_index = -1;  ///< in the eviction heap, kept by it; -1: not in it
  PrefixNode* node = nullptr;
  /// Of the token behind it, one per id of the vocabulary; empty: not kept.
  std::vector<float> logits;
};

/// What the tree knows of a prompt. Valid until the tree changes.
struct Lookup {
  std::int32_t matched = 0;                        ///< tokens that the key of some snapshot has too
  std::int32_t resumable = 0;                      ///< tokens that need not be run again
  Snapshot* snapshot = nullptr;                    ///< to resume from; null: nothing is resumable
  SnapshotSource source = SnapshotSource::memory;  ///< of the snapshot
};

/// What stands around a position, be there a snapshot or not: decides what one there is worth.
struct Neighborhood {
  std::int32_t depth = 0;
  std::int32_t shared = 0;    ///< tokens up to here that another snapshot has too
  Snapshot* above = nullptr;  ///< the nearest on the way here, not at it; null: none
  Snapshot* other = nullptr;  ///< one that has the shared tokens; null: there is none
  Snapshot* here = nullptr;   ///< null: none stands here
};

/// Snapshots by the tokens that lead to them. A node without a snapshot has two or more children,
/// except the root, so every leaf has one. The tree decides nothing: what is taken and what is
/// evicted is the business of its user.
class PrefixTree {
 public:
  /// The deepest position up to `limit` at which every kind of the layout can go on. Changes
  /// nothing. O(key + nodes on the way). Where the model has no recurrent layers but kinds that
  /// free pages, the nearest snapshot below a branch is looked for among the first 1024 nodes below
  /// it: past that a hit may be shorter than it could be.
  Lookup look_up(std::span<const TokenId> key, std::int32_t limit,
                 const MemoryLayout& layout) const;

  /// What stands around the end of the key.
  Neighborhood neighborhood(std::span<const TokenId> key) const;
  Neighborhood neighborhood(const Snapshot& snapshot) const;
  /// The same, were the snapshot above not there.
  Neighborhood without_above(const Neighborhood& neighborhood) const;

  /// Puts a checkpoint at the end of the key of checkpoint.length() > 0 tokens. Null when there is
  /// one already: the older stays.
  Snapshot* insert(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place);

  /// Takes a snapshot out; edges that lead nowhere go, edges without a reason merge. The snapshot
  /// is gone afterwards.
  Checkpoint erase(Snapshot& snapshot);

  /// The tokens that lead to a snapshot.
  static std::vector<TokenId> key(const Snapshot& snapshot);

  /// Snapshots on the way of the key, the shallowest first.
  std::vector<Snapshot*> on_the_way(std::span<const TokenId> key) const;

  /// All snapshots, in no order that means anything.
  std::vector<Snapshot*> snapshots() const;
  std::int32_t size() const { return size_; }

  /// Throws when depths, parents, snapshots or the compression are not what they should be.
  void audit() const;

 private:
  SnapshotTree tree_;
  std::int32_t size_ = 0;  ///< snapshots
};

}  // namespace hyb
