#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/memory/pool/memory_pool.h"
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
  /// A branch point is cut when it is at least so many tokens behind what can be resumed: a cut
  /// costs a step, and a short run of tokens is no dearer to run again.
  std::int32_t branch_tokens_min = 16;
  /// For logits at the ends of prompts, beside the pool. Past it the oldest ones go.
  std::size_t logits_bytes_max = std::size_t{32} << 20;
  /// The bytes of a full page follow from the tokens up to its end alone, whatever chunks they were
  /// run in and beside whom: so it is on the CPU. Then of two equal pages one is enough.
  bool pages_are_exact = true;
  /// Tokens of past prompts that are remembered without their snapshots, 4 bytes each, to find
  /// branch points by.
  std::int64_t seen_tokens_max = std::int64_t{1} << 20;
};

/// Points of a prompt where a snapshot is wanted, in ascending order: chunks are cut there.
struct Cut {
  std::int32_t length;
  SnapshotPlace place;
};

struct PrefixCacheStats {
  std::int64_t lookups = 0, hits = 0;  ///< sequences that were started, and those that resumed
  std::int64_t tokens_matched = 0, tokens_resumed = 0;
  std::int64_t published = 0, refused = 0;  ///< refused: worth less than all that there was
  std::int64_t evicted = 0, bytes_evicted = 0;
  std::int64_t pages_merged = 0;  ///< full pages that two sequences had computed, each for itself
};

/// Remembers prefixes of sequences that ran: which snapshots to take, which to give up, and how a
/// new sequence resumes from them. Policies only; pages and slots are the pool's, tokens the
/// tree's.
class PrefixCache {
 public:
  using EvictionListener = std::function<void(std::span<const TokenId> key, const Snapshot&)>;

  /// The pool outlives the cache.
  PrefixCache(MemoryPool& pool, const PrefixCacheOptions& options);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// Looks up the whole prompt; at most its length - 1 is resumable, so that one token is left to
  /// draw from. Counts nothing and refreshes nothing: requests that wait look up again and again.
  Lookup look_up(std::span<const TokenId> prompt) const;

  /// The memory of a sequence that stands at lookup.resumable. Refreshes the snapshot that is used
  /// and no other. Empty: the pool is dry; the caller may evict and look up again.
  std::optional<Memory> resume(const Lookup& lookup);

  /// Where the prompt is to be cut: the branch point (matched beyond resumable, or by an earlier
  /// prompt whose snapshots are gone), the ends of messages that the request names, the end of the
  /// prompt less one token when placement wants it. All > lookup.resumable and < prompt.size().
  /// None where every position can be resumed without. Once for a request: the prompt is seen then.
  std::vector<Cut> cuts(const Lookup& lookup, std::span<const TokenId> prompt,
                        std::span<const std::int32_t> message_ends);

  /// The same of a prompt whose future is known: those of these lengths, in ascending order, that
  /// win enough tokens, and no others.
  std::vector<Cut> cuts_at(const Lookup& lookup, std::span<const TokenId> prompt,
                           std::span<const std::int32_t> lengths) const;

  /// A snapshot of a running sequence at memory.length(); key are its tokens so far (that many or
  /// more). Between steps: the step that produced it is done. Evicts to make room as long as the
  /// new one is worth more than the victim; the snapshot above it stays. False: there was no room
  /// to be had, or the position is covered already. Full pages that the tree has too are shared
  /// with it from here on, and the sequence's own given back.
  bool publish(std::span<const TokenId> key, Memory& memory, SnapshotPlace place);

  /// The same of a sequence that ends; its memory is released either way. SnapshotPolicy decides
  /// whether the end of the turn is worth keeping.
  bool publish_final(std::span<const TokenId> key, Memory memory,
                SnapshotPlace place = SnapshotPlace::turn_end);

  /// A checkpoint that was filled from elsewhere (disk tier, session file), at the end of the key
  /// of checkpoint.length() tokens. False, and it is released: the position is covered already.
  bool insert(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place,
              SnapshotSource source = SnapshotSource::memory);

  /// Keeps the logits behind the key with the snapshot that stands at its end. False: none does, or
  /// they are more than logits_bytes_max.
  bool keep_logits(std::span<const TokenId> key, std::vector<float> logits);
  /// Logits that were kept behind exactly this key; empty: there are none. Valid until the cache
  /// changes.
  std::span<const float> logits(std::span<const TokenId> key) const;

  /// These are what the next who wait will resume from, the soonest first: they are given up after
  /// all others, the last of them first. No longer those named before.
  void pin(std::span<Snapshot* const> snapshots);

  /// Gives up the snapshot of least value. False: there is none. `keep`: never this one. What a
  /// running sequence shares with it stays in use, so this may free less than it had.
  bool evict(const Snapshot* keep = nullptr);

  /// From now on prefill costs this: all snapshots are weighed anew, which is O(n). It decides who
  /// is evicted and nothing else.
  void set_cost(const PrefillCost& cost);

  /// Nothing to come has more than the first `tokens` of the key: snapshots behind them on its way
  /// are the first to go, and nobody hears of it. One that is used all the same is as others again.
  void deprioritize(std::span<const TokenId> key, std::int32_t tokens);

  /// Hears of every snapshot before it is evicted (disk tier, host tier), except deprioritized
  /// ones.
  void on_evict(EvictionListener listener) { on_evict_ = std::move(listener); }

  /// Gives up everything: after a failed step nothing is to be trusted. Nobody hears of it.
  void clear();

  const PrefixTree& tree() const { return tree_; }
  const PrefixCacheStats& stats() const { return stats_; }
  const PrefixCacheOptions& options() const { return options_; }

  /// All checkpoints it holds, for the pool's audit.
  std::vector<const Checkpoint*> checkpoints() const;

  /// Throws when tree and heap disagree, or either with itself: our own bug.
  void audit() const;

 private:
  std::int32_t see(std::span<const TokenId> prompt);
  double worth(const Neighborhood& neighborhood, SnapshotPlace place, bool continued) const;
  double worth(const Neighborhood& neighborhood, SnapshotPlace place, bool continued,
               double level) const;
  bool is_covered(const Neighborhood& neighborhood) const;
  bool make_room(double worth, const Snapshot* keep);
  void merge_pages(const Neighborhood& neighborhood, Memory& memory);
  Snapshot& add(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place);
  Snapshot* victim(const Snapshot* keep);
  void give_up(Snapshot& victim);
  void drop_logits(Snapshot& snapshot);
  void drop_oldest_logits();
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
  bool was_packed_ = false;  ///< one was int8: what was run from it is not exact
  PrefixCacheStats stats_;
  std::size_t logits_bytes_ = 0;
};

}  // namespace hyb
