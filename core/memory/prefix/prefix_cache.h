#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/cuts.h"
#include "core/memory/prefix/prefill_cost.h"
#include "core/memory/prefix/prefix_tree.h"
#include "core/memory/prefix/prompts.h"
#include "core/memory/prefix/snapshot_policy.h"

namespace hyb {

struct PrefixCacheOptions {
  bool enabled = true;                     ///< false: remembers nothing
  Precision precision = Precision::exact;  ///< of snapshots
  EvictionRule eviction = EvictionRule::greedy_dual;
  PrefillCost cost = default_prefill_cost;             ///< of this model on this machine
  PlacementPrior placement = PlacementPrior::unknown;  ///< what the chat template lets expect
  /// A branch point is cut when it is at least this many tokens after what can be resumed: a
  /// snapshot has a price, and a short run of tokens is cheap to run again.
  std::int32_t branch_tokens_min = 16;
  /// The bytes of a full page depend on the tokens up to its end alone, whatever the chunks and the
  /// other sequences of the steps: so it is on the CPU. Then one of two equal pages is enough.
  bool pages_are_exact = true;
  /// Tokens of past prompts that are remembered without their snapshots, 4 bytes each, to find
  /// branch points.
  std::int64_t seen_tokens_max = std::int64_t{1} << 20;
};

struct PrefixCacheStats {
  std::int64_t lookups = 0, hits = 0;  ///< sequences that started, and those that resumed
  std::int64_t tokens_matched = 0, tokens_resumed = 0;
  std::int64_t published = 0, refused = 0;  ///< refused: worth less than all others
  std::int64_t evicted = 0, bytes_evicted = 0;
  std::int64_t pages_merged = 0;  ///< full pages that two sequences had both computed

  PrefixCacheStats& operator+=(const PrefixCacheStats& more);
};

/// Remembers prefixes of sequences that ran: decides which snapshots to take and to evict, and how
/// a new sequence resumes from them. Policies only; pages and slots are the pool's, tokens the
/// tree's.
class PrefixCache {
 public:
  using EvictionListener = std::function<void(std::span<const TokenId> key, const Snapshot&)>;

  /// The pool outlives the cache.
  PrefixCache(MemoryPool& pool, const PrefixCacheOptions& options);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// Looks up the whole prompt; at most its length - 1 is resumable, so that one token is left to
  /// draw from. Counts nothing and refreshes nothing: waiting requests look up again and again.
  Lookup look_up(std::span<const TokenId> prompt) const;

  /// The memory of a sequence at lookup.resumable tokens. Refreshes the snapshot that is used and
  /// no other. Empty: the pool is dry; the caller may evict and look up again.
  std::optional<Memory> resume(const Lookup& lookup);

  /// Returns where the prompt is to be cut: the branch point (matched beyond resumable, or by an
  /// earlier prompt whose snapshots are gone), the ends of messages that the request names, the end
  /// of the prompt less one token when the policy wants it. All > lookup.resumable and <
  /// prompt.size(). None where every position can be resumed anyway. Once per request: it adds the
  /// prompt to the history.
  std::vector<Cut> cuts(const Lookup& lookup, std::span<const TokenId> prompt,
                        std::span<const std::int32_t> message_ends);

  /// The same for a prompt whose future is known: those of `lengths` (ascending) that save enough
  /// tokens, and no others.
  std::vector<Cut> cuts_at(const Lookup& lookup, std::span<const TokenId> prompt,
                           std::span<const std::int32_t> lengths) const;

  /// A snapshot of a running sequence at memory.length(); `key` has its tokens so far (that many or
  /// more). Between steps. Evicts to make room as long as the new one is worth more than the
  /// victim; the snapshot above it stays. False: there was no room, or the position is covered
  /// already. Full pages that the tree has too are shared with it from now on, and the sequence's
  /// own are released.
  bool publish(std::span<const TokenId> key, Memory& memory, SnapshotPlace place);

  /// The same for a sequence that ends; its memory is released either way. The policy decides
  /// whether the end of the turn is worth keeping.
  bool publish_final(std::span<const TokenId> key, Memory memory,
                     SnapshotPlace place = SnapshotPlace::turn_end);

  /// A checkpoint that was filled from outside (disk tier, session file), at the end of the key of
  /// checkpoint.length() tokens. False, and it is released: the position is covered already.
  bool insert(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place,
              SnapshotSource source = SnapshotSource::memory);

  /// Pins what the next waiting requests will resume from, the soonest first: they are evicted
  /// after all others, the last of them first. Unpins those pinned before.
  void pin(std::span<Snapshot* const> snapshots);

  /// Evicts the snapshot of least value. False: there is none. `keep`: never this one. What a
  /// running sequence shares with it stays in use, so this may free less than it had.
  bool evict(const Snapshot* keep = nullptr);

  /// From now on prefill costs this: all snapshots get a new value, which is O(n). It decides what
  /// is evicted and nothing else.
  void set_cost(const PrefillCost& cost);

  /// No request to come has more than the first `tokens` of the key: snapshots after them on its
  /// path are evicted first, without a call of the listener. One that is used nevertheless is like
  /// others again.
  void deprioritize(std::span<const TokenId> key, std::int32_t tokens);

  /// The listener is called for every snapshot before it is evicted (disk tier, host tier), except
  /// deprioritized ones.
  void on_evict(EvictionListener listener) { on_evict_ = std::move(listener); }

  /// Drops everything, without a call of the listener: after a failed step nothing can be trusted.
  void clear();
  /// Drops those whose checkpoint is lost; no listener is called.
  void drop_lost(const std::function<bool(const Checkpoint&)>& is_lost);

  const PrefixTree& tree() const { return tree_; }
  const PrefixCacheStats& stats() const { return stats_; }
  const PrefixCacheOptions& options() const { return options_; }

  /// All checkpoints it holds, for the pool's audit.
  std::vector<const Checkpoint*> checkpoints() const;

  /// Throws when tree and heap disagree, or either with itself: our own bug.
  void audit() const;

 private:
  std::int32_t remember(std::span<const TokenId> prompt);
  double worth(const Neighborhood& neighborhood, SnapshotPlace place, bool continued) const;
  double worth(const Neighborhood& neighborhood, SnapshotPlace place, bool continued,
               double level) const;
  bool is_covered(const Neighborhood& neighborhood) const;
  bool make_room(double worth, const Snapshot* keep);
  void merge_pages(const Neighborhood& neighborhood, Memory& memory);
  Snapshot& add(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place);
  Snapshot* victim(const Snapshot* keep);
  void settle(const Neighborhood& neighborhood);
  void give_up(Snapshot& victim);
  void erase(Snapshot& snapshot);

  MemoryPool* pool_;
  PrefixCacheOptions options_;
  PrefixTree tree_;
  PromptHistory history_;
  SnapshotPolicy policy_;
  SnapshotValue value_;
  Eviction eviction_;
  std::vector<Snapshot*> pinned_;
  EvictionListener on_evict_;
  bool was_packed_ = false;  ///< one was int8: what ran from it is not exact
  PrefixCacheStats stats_;
};

}  // namespace hyb
