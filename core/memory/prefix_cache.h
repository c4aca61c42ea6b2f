#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/memory/eviction.h"
#include "core/memory/memory.h"
#include "core/memory/placement.h"
#include "core/memory/prefix_tree.h"

namespace hyb {

struct PrefixCacheOptions {
  bool enabled = true;                     ///< false: remembers nothing
  Precision precision = Precision::exact;  ///< of snapshots
  EvictionRule eviction = EvictionRule::greedy_dual;
  PrefillCost cost;          ///< of this model on this machine
  PlacementPrior placement;  ///< what the chat template lets expect
};

/// What a request can expect of the prefix tree. Valid until the cache changes.
struct Lookup {
  std::int32_t matched = 0;    ///< tokens that an earlier sequence had too
  std::int32_t resumable = 0;  ///< of these, the ones that need not be run again
  Snapshot* snapshot = nullptr;
};

/// Points of a prompt where a snapshot is wanted, in ascending order: chunks are cut there.
struct Cut {
  std::int32_t length;
  SnapshotPlace place;
};

struct PrefixCacheStats {
  std::int64_t lookups = 0, hits = 0;
  std::int64_t tokens_matched = 0, tokens_resumed = 0;
  std::int64_t published = 0, evicted = 0, bytes_evicted = 0;
};

/// Remembers prefixes of sequences that ran: which snapshots to take, which to give up, and how a
/// new sequence resumes from them. Policies only; pages and slots are the pool's, tokens the
/// tree's.
class PrefixCache {
 public:
  /// The pool outlives the cache.
  PrefixCache(MemoryPool& pool, const PrefixCacheOptions& options);
  ~PrefixCache();

  /// Looks up the whole prompt; at most its length - 1 is resumable, so that one token is left to
  /// draw from. Counts nothing and refreshes nothing: requests that wait look up again and again.
  Lookup look_up(std::span<const TokenId> prompt) const;

  /// The memory of a sequence that stands at lookup.resumable. Refreshes the snapshot that is used
  /// and no other. Empty: the pool is dry; the caller may evict and look up again.
  std::optional<Memory> resume(const Lookup& lookup);

  /// Where the prompt is to be cut: the branch point (matched beyond resumable), the ends of
  /// messages that the request names, the end of the prompt less one token when placement wants it.
  /// All > lookup.resumable and < prompt.size().
  std::vector<Cut> cuts(const Lookup& lookup, std::span<const TokenId> prompt,
                        std::span<const std::int32_t> message_ends);

  /// A snapshot of a running sequence at memory.length(); key are its tokens so far (that many or
  /// more). Between steps: the step that produced it is done. Makes room by eviction where that is
  /// worth it. False: there was none to be had, or one stands there already.
  bool publish(std::span<const TokenId> key, Memory& memory, SnapshotPlace place);

  /// The same of a sequence that ends; its memory is released either way. Placement decides whether
  /// the end of the turn is worth keeping.
  bool conclude(std::span<const TokenId> key, Memory memory);

  /// Gives up the snapshot of least value. False: there is none. `keep`: never this one.
  bool evict(const Snapshot* keep = nullptr);

  /// Hears of every snapshot before it goes (disk tier, host tier).
  void on_evict(std::function<void(std::span<const TokenId> key, const Snapshot& snapshot)> hears);

  /// Gives up everything: after a failed step nothing is to be trusted.
  void clear();

  const PrefixTree& tree() const { return tree_; }
  const PrefixCacheStats& stats() const { return stats_; }
  void audit() const;

 private:
  MemoryPool* pool_;
  PrefixCacheOptions options_;
  PrefixTree tree_;
  Placement placement_;
  std::unique_ptr<Eviction> eviction_;
  PrefixCacheStats stats_;
};

}  // namespace hyb
