#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/prefix_node.h"

namespace hyb {

/// What the tree knows of a key.
struct Match {
  std::int32_t tokens = 0;       ///< of the key that some snapshot's key has too
  Snapshot* snapshot = nullptr;  ///< null: nothing can be resumed
  std::int32_t length = 0;       ///< of the key, resumable from it
};

/// What stands around a position, be there a snapshot or not: decides what one there is worth.
struct Standing {
  std::int32_t depth = 0;
  std::int32_t shared = 0;    ///< tokens up to here that another snapshot has too
  Snapshot* above = nullptr;  ///< the nearest on the way here, not at it; null: none
  Snapshot* other = nullptr;  ///< one that has the shared tokens; null: there is none
  Snapshot* here = nullptr;   ///< null: none stands here
};

/// Snapshots by the tokens that lead to them: a radix tree. Token ids are compared on every match;
/// nothing is hashed but the first token of an edge. It decides nothing: who goes and what is taken
/// is above.
class PrefixTree {
 public:
  PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  /// The deepest position up to `limit` at which every kind of the layout can go on. Splits
  /// nothing, changes nothing. O(key + nodes on the way). Where the model has no recurrent layers
  /// but kinds that free pages, the nearest snapshot below a branch is looked for among the first
  /// 1024 nodes below it: past that a hit may be shorter than it could be.
  Match match(std::span<const TokenId> key, std::int32_t limit, const MemoryLayout& layout) const;

  /// What stands around the end of the key.
  Standing standing(std::span<const TokenId> key) const;
  Standing standing(const Snapshot& snapshot) const;
  /// The same, were the snapshot above not there.
  Standing without_above(const Standing& standing) const;

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
  /// Where a key leads: so many of its tokens are in the tree, the last of them on the edge of
  /// `node` (the root: none).
  struct Walk {
    PrefixNode* node;
    std::int32_t tokens;
  };
  Walk walk(std::span<const TokenId> key) const;
  PrefixNode* new_node();
  void release(PrefixNode* node);
  PrefixNode* split(PrefixNode* node, std::int32_t depth);
  PrefixNode* grow(std::span<const TokenId> key, Walk from);
  void merge_into_child(PrefixNode* node);

  std::deque<PrefixNode> nodes_;  ///< those in use and the free ones
  std::vector<PrefixNode*> free_;
  PrefixNode* root_;       ///< no tokens, no snapshot
  std::int32_t size_ = 0;  ///< snapshots
};

}  // namespace hyb
