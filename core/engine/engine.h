#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/engine/handover_stats.h"
#include "core/engine/request.h"
#include "core/engine/runner.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"

namespace hyb {

class Drafter;
class EngineState;
class SnapshotIo;
class SnapshotTier;
class Storage;
class Tokenizer;
class TraceRecorder;
class UnitLink;
struct TierOptions;

/// Whether and how drafts of tokens are verified. Answers do not depend on it.
struct SpeculationOptions {
  bool is_on = false;
  std::int32_t drafts = 0;  ///< of a sequence in a step, at most 7; 0: by what is measured
  /// With a number of drafts: tokens that are tried in one place. 1: no tree.
  std::int32_t branches = 1;
  std::int32_t rows = 0;       ///< of a tree (TreeLimits::rows); 0: twice those of the drafts alone
  Drafter* drafter = nullptr;  ///< outlives the engine; null: repeated text (NgramDrafter)
  /// Without a drafter: the runner's model drafts, where Runner::can_draft().
  bool by_model = false;
};

/// Counts of drafts so far.
struct SpeculationStats {
  std::int64_t verify_steps = 0;                               ///< of one sequence each
  std::array<std::int64_t, drafts_max> drafted{}, accepted{};  ///< by position after the token
  std::int64_t branch_drafts = 0;   ///< other tokens in the place of these
  std::int64_t branches_taken = 0;  ///< steps in which tokens of a branch were drawn
  double drafting_seconds = 0;

  DraftCounts total() const;
  /// Of the drafts at each position, as far as there were some, the share that was accepted.
  std::vector<double> accepted_shares() const;
  SpeculationStats operator-(const SpeculationStats& before) const;
  SpeculationStats& operator+=(const SpeculationStats& more);
};

struct EngineOptions {
  std::int32_t length_max;          ///< most tokens of one sequence: prompt and answer
  std::int32_t sequences_max = 64;  ///< most sequences that run at once
  std::int32_t chunk_tokens = 512;  ///< most prompt tokens of one sequence in one step
  /// Most prompt tokens, of all sequences, of a step in which answers go on: they wait for all of
  /// it. 0: as many as there is room for.
  std::int32_t mixed_tokens = 0;
  PrefixCacheOptions prefixes = {};     ///< what is remembered of sequences that ran
  std::int32_t shared_tokens_min = 64;  ///< a sequence waits for a running one that has this many
                                        ///< tokens to run that it needs, too; 1 or more
  std::int32_t look_ahead = 8;          ///< waiting sequences whose snapshots to resume from are
                                        ///< pinned while others are evicted
  /// States (of sequences and snapshots) for which the pool orders memory ahead of need, in a step
  /// in which every sequence has begun its answer and after others began: 0 on a device whose
  /// memory is there from the start.
  std::int32_t states_ahead = 0;
  /// The cost of prefill is learned from the steps, starting with prefixes.cost: it drives
  /// eviction. Off, eviction depends on no clock. With int8 snapshots it should be off, since there
  /// a reused prefix and one that is run again differ.
  bool measures_prefill = false;
  SpeculationOptions speculation = {};
  /// Runs prompts, up to the first token of each answer, while the engine's runner goes on with
  /// answers: an asynchronous runner of the same capacity, on the same bytes, whose steps never
  /// have orders. What a step had that it lost (StepLost) is run again. It outlives the engine.
  /// Null: one runner runs everything.
  Runner* prefill_lane = nullptr;
  /// Where the prefill lane has memory of its own: the way between that and the memory of answers.
  /// Its steps then have orders, and its pool may have another number of superblocks. It outlives
  /// the engine. Null: they share one memory.
  UnitLink* link = nullptr;
  /// What the link copies in a second, to compare with running a prompt again.
  double link_bytes_per_second = 4e9;
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  /// Memory is not shared elastically: this share of the superblocks is for states for good
  /// (with_state_share()). For comparisons; not with a prefill lane.
  std::optional<double> state_share = {};
  bool audit = false;  ///< checks all counts after every step: slow
};

/// Counts of memory and prefixes so far.
struct EngineUsage {
  PoolUsage pool;
  PrefixCacheStats prefixes;
  PrefillCost cost;                ///< used by eviction
  std::int32_t snapshots = 0;      ///< in the prefix tree now
  std::int64_t steps = 0;          ///< given to the runner
  std::int64_t steps_ahead = 0;    ///< of these, launched before the last one's text was emitted
  std::int64_t prefill_steps = 0;  ///< of these, in the prefill lane
  std::int64_t failed_steps = 0;   ///< of these, the ones that threw
  std::int64_t preemptions = 0;    ///< sequences that lost their memory and waited again
  std::int64_t deferrals = 0;  ///< times that one could not continue, or start, for lack of memory
  std::int64_t prefix_waits = 0;  ///< times that one waited for another's prefix
  std::int64_t tier_waits = 0;    ///< times that one waited for what a tier has of its tokens
  SpeculationStats speculation;
  /// Where prompts have memory of their own; `prefixes` counts what begins on either side.
  PoolUsage prompt_pool = {};
  std::int32_t prompt_snapshots = 0;  ///< in the prefix tree of that side now
  HandoverStats handovers = {};
};

/// Runs many requests at once on one Runner: every command goes through here, and nothing else
/// holds a Memory. It is called from one thread; the only thread that it starts is a tier's, which
/// touches a storage and staging buffers alone.
class Engine {
 public:
  /// `tokenizer` may be null: then there is no text, and stop strings are refused. Runner,
  /// tokenizer and sinks outlive the engine.
  Engine(Runner& runner, const Tokenizer* tokenizer, const EngineOptions& options);
  ~Engine();

  /// The most tokens one sequence can have: the smaller of options.length_max and what the pools
  /// hold; less after memory had to be released to the device.
  std::int32_t length_max() const;

  /// Queues a request. Throws Error(usage) at once when it can never run: an empty prompt, a token
  /// id outside the vocabulary, a prompt of more than length_max() - 1 tokens (says by how much),
  /// max_tokens or sampling parameters out of range, stop strings without a tokenizer; and
  /// Error(memory) when the prompt would need more memory than all that there is, with the figures.
  RequestId submit(Request request, Sink& sink);

  /// Ends a request: its sequences run no more (what they ran stays known as a prefix), its sink
  /// receives FinishReason::cancelled for each choice that had not ended, before this returns (from
  /// inside a sink: soon after). Does nothing when the request has ended already. Waits for the
  /// running step, if there is one: what it draws for this request is dropped.
  void cancel(RequestId request);

  /// One step of the runner, to its end. On an asynchronous runner the next one may be running when
  /// this returns: it runs while events of this one are delivered, and during whatever the caller
  /// does until the next call. False when there was nothing to do. Throws what the runner throws;
  /// no request is lost by that: memory is released, and the next step() starts to recompute it
  /// from the tokens. Snapshots that the step was to fill are lost, too, or all of them where
  /// another step was running or memory was lacking. A step that lacks memory is retried by the
  /// next step(), once before a token is drawn, after an eighth of the superblocks was released to
  /// the device for good; a request that no longer fits then ends with an error. So this throws
  /// Error(memory) when that did not help or, with nothing lost, when the device has not even what
  /// the oldest sequence needs.
  bool step();

  /// Has the runner carry out open orders, as the next step() would: after it Runner::read sees the
  /// bytes of every snapshot. Not from inside a step. Throws what the runner throws.
  void carry_out_orders();

  /// Orders memory ahead (EngineOptions::states_ahead) and has the runner carry that out: for a
  /// pause in which nothing runs. Otherwise as carry_out_orders().
  void prepare_memory();

  bool idle() const;             ///< no request is unfinished, no event undelivered
  std::int32_t running() const;  ///< sequences that hold memory
  std::int32_t waiting() const;  ///< sequences that do not

  EngineUsage usage() const;

  /// The snapshots and their memory, for session files and tiers. Not from inside a step. Each call
  /// ends the running step, and throws what the runner throws, without a retry; what it returned is
  /// valid until the next step().
  PrefixCache& prefixes();
  MemoryPool& pool();
  SnapshotIo snapshot_io();
  /// The snapshots of prompts in memory of their own; null: there is one memory.
  PrefixCache* prompt_prefixes();

  /// Evicted snapshots are written to the storage, and fetched for a request that is about to
  /// start, or to start again, with their tokens: it waits for them while others run. Call it at
  /// most once. `name` is for messages, such as "disk tier".
  void add_tier(const std::string& name, std::unique_ptr<Storage> storage,
                const TierOptions& options);
  SnapshotTier* tier();  ///< null: there is none

  /// From now on every request is recorded (null: no more). The recorder outlives the engine.
  void record(TraceRecorder* recorder);

  /// Checks that every page and slot is accounted for. Throws on a bug of ours.
  void audit() const;

 private:
  std::unique_ptr<EngineState> state_;
};

}  // namespace hyb
