#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb {

/// Why a snapshot was taken where it stands.
enum class SnapshotPlace : std::uint8_t { branch, prompt_end, turn_end, message_end };

inline constexpr std::size_t snapshot_places = 4;

/// Where its bytes were before the prefix tree had them.
enum class SnapshotSource : std::uint8_t { memory, disk, session };

struct PrefixNode;

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
  std::int32_t awaited = 0;      ///< n: the n-th that somebody waits for; 0: nobody is known to
  std::int32_t heap_index = -1;  ///< in the eviction heap, kept by it; -1: not in it
  PrefixNode* node = nullptr;
  /// Of the token behind it, one per id of the vocabulary; empty: not kept.
  std::vector<float> logits;
};

/// The nodes below a node, by the first token of their edge. Two lie in the node itself, so that a
/// walk down a line of turns misses no memory on their account; more lie in one hash table.
class ChildNodes {
 public:
  std::int32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  /// Null: there is none.
  PrefixNode* find(TokenId first) const;
  /// There is none of this token yet.
  void insert(TokenId first, PrefixNode* node);
  /// There is one of this token, for which `node` stands in.
  void replace(TokenId first, PrefixNode* node);
  /// There is one of this token.
  void erase(TokenId first);

  /// Any of them, but not `other`; null: there is none.
  PrefixNode* any(const PrefixNode* other = nullptr) const;

  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const Entry& entry : entries()) {
      if (entry.node != nullptr) visit(entry.first, entry.node);
    }
  }

 private:
  struct Entry {
    TokenId first{};
    PrefixNode* node = nullptr;  ///< null: the place is free
  };

  std::span<const Entry> entries() const {
    return table_.empty() ? std::span<const Entry>(few_) : std::span<const Entry>(table_);
  }
  Entry* place(TokenId first);
  std::size_t home(TokenId first) const;
  void resize(std::size_t places);

  std::array<Entry, 2> few_;
  std::vector<Entry> table_;  ///< linear probing; a power of two, at most half full. Empty: few_
  std::int32_t size_ = 0;
};

/// A run of tokens that at least one snapshot at its end or below it has in common. A node without
/// a snapshot has two or more children, but for the root, so every leaf has one.
struct alignas(64) PrefixNode {
  std::vector<TokenId> tokens;  ///< of the edge from the parent
  std::int32_t depth = 0;       ///< tokens from the root to the end of the edge
  PrefixNode* parent = nullptr;
  std::unique_ptr<Snapshot> snapshot;
  ChildNodes children;
};

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
