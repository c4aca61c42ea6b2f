#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/pool/memory.h"
#include "core/memory/prefix/token_tree.h"

namespace hyb {

/// Why a snapshot was taken at its position.
enum class SnapshotPlace : std::uint8_t { branch, prompt_end, turn_end, message_end };

inline constexpr std::size_t snapshot_places = 4;

/// Says where the bytes of a snapshot were before they came into the prefix tree.
enum class SnapshotSource : std::uint8_t { memory, host, disk, session };

struct Snapshot;
using SnapshotTree = TokenTree<std::unique_ptr<Snapshot>>;
using PrefixNode = SnapshotTree::Node;

/// A checkpoint in the tree, and its state in eviction.
struct Snapshot {
  Checkpoint checkpoint;
  SnapshotPlace place = SnapshotPlace::branch;
  SnapshotSource source = SnapshotSource::memory;  ///< memory, once a sequence resumed from it
  bool used = false;                               ///< a later request resumed from it
  bool continued = false;   ///< the same, and a continuation of it is still in the tree
  double value = 0;         ///< the smallest is removed first
  double worth = 0;         ///< the part of the value that is its own, not the level's
  std::uint64_t added = 0;  ///< among equal values the first one added is evicted first
  std::int32_t pinned =
      0;  ///< n: the n-th that a waiting request will resume from; 0: none is known to
  std::int32_t heap_index = -1;  ///< in the eviction heap, kept by it; -1: not in it
  PrefixNode* node = nullptr;
};

/// Holds what the tree knew of a prompt. It can be resumed from as long as its snapshot is in the
/// tree.
struct Lookup {
  std::int32_t matched = 0;                        ///< tokens that the key of some snapshot has too
  std::int32_t resumable = 0;                      ///< tokens that need not be run again
  Snapshot* snapshot = nullptr;                    ///< to resume from; null: nothing is resumable
  SnapshotSource source = SnapshotSource::memory;  ///< of the snapshot
};

/// Describes what is around a position, with or without a snapshot at it: decides what a snapshot
/// there is worth.
struct Neighborhood {
  std::int32_t depth = 0;
  std::int32_t shared = 0;    ///< leading tokens that another snapshot has too
  Snapshot* above = nullptr;  ///< the nearest on the path to it; null: none
  Snapshot* other = nullptr;  ///< one that has the shared tokens; null: there is none
  Snapshot* here = nullptr;   ///< the one at the position; null: none
};

/// Snapshots by the tokens that lead to them. A node without a snapshot has two or more children,
/// except the root, so every leaf has one. The tree decides nothing: its user decides what is taken
/// and what is evicted.
class PrefixTree {
 public:
  /// The deepest position up to `limit` at which every kind of the layout can go on. Changes
  /// nothing. O(key + nodes on the way). Where the model has no recurrent layers but kinds that
  /// free pages, the nearest snapshot below a branch is searched among the first 1024 nodes below
  /// it: beyond that a hit may be shorter than possible.
  Lookup look_up(std::span<const TokenId> key, std::int32_t limit,
                 const MemoryLayout& layout) const;

  /// The neighborhood of the end of the key.
  Neighborhood neighborhood(std::span<const TokenId> key) const;
  Neighborhood neighborhood(const Snapshot& snapshot) const;
  /// The same, were the snapshot above not there.
  Neighborhood without_above(const Neighborhood& neighborhood) const;

  /// Up to `most` tokens that the key of some snapshot has after the leading tokens of `key` that
  /// any has.
  std::vector<TokenId> continuation(std::span<const TokenId> key, std::int32_t most) const;

  /// Puts a checkpoint at the end of the key of checkpoint.length() > 0 tokens. Null when there is
  /// one already: the older stays.
  Snapshot* insert(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place);

  /// Removes and destroys a snapshot; edges without a snapshot below are removed, edges without a
  /// branch are merged.
  Checkpoint erase(Snapshot& snapshot);

  /// The tokens that lead to a snapshot.
  static std::vector<TokenId> key(const Snapshot& snapshot);

  /// Snapshots on the path of the key, the shallowest first.
  std::vector<Snapshot*> on_the_way(std::span<const TokenId> key) const;

  /// All snapshots, in no particular order.
  std::vector<Snapshot*> snapshots() const;
  std::int32_t size() const { return size_; }

  /// Throws when depths, parents, snapshots or the compression are not what they should be.
  void audit() const;

 private:
  SnapshotTree tree_;
  std::int32_t size_ = 0;  ///< snapshots
};

}  // namespace hyb
