#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/memory.h"

namespace hyb {

/// Why a snapshot was taken where it stands.
enum class SnapshotPlace : std::uint8_t { branch, prompt_end, turn_end, message_end };

inline constexpr std::size_t snapshot_places = 4;

/// Position of an entry in the eviction heap, kept by the heap.
using HeapIndex = std::int32_t;

struct PrefixNode;

/// A checkpoint in the tree and what eviction knows of it.
struct Snapshot {
  Checkpoint checkpoint;
  SnapshotPlace place;
  bool used = false;  ///< a later request resumed from it
  double value = 0;   ///< smallest goes first
  HeapIndex heap_index = -1;
  PrefixNode* node = nullptr;
};

/// A run of tokens that at least one snapshot at its end or below it has in common. A node without
/// a snapshot has two or more children.
struct PrefixNode {
  std::vector<TokenId> tokens;  ///< of the edge from the parent
  std::int32_t depth = 0;       ///< tokens from the root to the end of the edge
  std::int32_t snapshots = 0;   ///< at this node and below
  PrefixNode* parent = nullptr;
  std::map<TokenId, std::unique_ptr<PrefixNode>> children;  ///< by the first token of their edge
  std::unique_ptr<Snapshot> snapshot;
};

/// What the tree knows of a key.
struct Match {
  std::int32_t tokens = 0;       ///< of the key that some snapshot's key has too
  Snapshot* snapshot = nullptr;  ///< null: nothing can be resumed
  std::int32_t length = 0;       ///< of the key, resumable from it
};

/// Snapshots by the tokens that lead to them: a radix tree. Token ids are compared on every match;
/// nothing is hashed. It decides nothing: who goes and what is taken is above.
class PrefixTree {
 public:
  /// The deepest position up to `limit` at which every kind of `pool`'s model can go on. Splits
  /// nothing, changes nothing. O(key + nodes on the way), plus one walk below the point of
  /// divergence where the model has no recurrent layers.
  Match match(std::span<const TokenId> key, std::int32_t limit, const MemoryPool& pool) const;

  /// Puts a checkpoint at the end of the key of checkpoint.length() tokens. Null when there is one
  /// already: the older stays.
  Snapshot* insert(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place);

  /// Takes a snapshot out; edges that lead nowhere go, edges without a reason merge.
  Checkpoint erase(Snapshot& snapshot);

  /// Tokens of KV that only this snapshot holds: its depth less that of the deepest point above it
  /// that another snapshot shares.
  static std::int32_t exclusive_tokens(const Snapshot& snapshot);

  /// The nearest snapshot above it; null: none.
  static const Snapshot* above(const Snapshot& snapshot);

  std::int32_t snapshots() const { return root_.snapshots; }

  /// Throws when depths, counts, parents or the compression are not what they should be.
  void audit() const;

 private:
  PrefixNode root_;
};

}  // namespace hyb
