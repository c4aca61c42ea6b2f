#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/engine/accept_drafts.h"
#include "core/engine/chunk_pace.h"
#include "core/engine/engine_options.h"
#include "core/engine/engine_usage.h"
#include "core/engine/lanes.h"
#include "core/engine/request.h"
#include "core/engine/requests.h"
#include "core/engine/runner.h"
#include "core/engine/side.h"
#include "core/engine/speculation.h"
#include "core/engine/step_pipeline.h"
#include "core/memory/prefix/prefill_cost.h"

namespace hyb {

class SnapshotTier;
class Storage;
class Tokenizer;
class TraceRecorder;
struct TierOptions;

/// Runs many requests at once on one Runner: every command goes through here, and nothing else
/// holds a Memory. It is called from one thread; the only thread that it starts is a tier's, which
/// touches a storage and staging buffers alone.
///
/// The life of a step. Lanes decides what comes next: it asks the Scheduler of the side in question
/// for a plan, which has memory reserved in the MemoryPool, and starts sequences from what the
/// PrefixCache remembers. Speculation adds drafts to the plan. StepPipeline makes the Step of it,
/// with the pool's open orders, has the runner launch it, and launches the one after it meanwhile,
/// where that can be foreseen. Its results are applied: each Sequence takes the token that was
/// drawn for it and says what text is certain, and the scheduler leaves snapshots where some are
/// wanted. What has ended leaves lanes, drafts and memory. At last Requests delivers text and ends
/// to sinks. What runs beside, where prompts have a lane of their own, is applied between two
/// steps.
///
/// A step that fails takes no request with it: Side releases the memory that is not known any more,
/// and its sequences run again from their tokens.
class Engine {
 public:
  /// `tokenizer` may be null: then there is no text, and stop strings are refused. Runner,
  /// tokenizer and sinks outlive the engine.
  Engine(Runner& runner, const Tokenizer* tokenizer, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The most tokens one sequence can have: the smaller of options.length_max and what the pools
  /// hold; less after memory had to be released to the device.
  std::int32_t length_max() const { return length_max_; }

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

  /// No request is unfinished, no event undelivered.
  bool idle() const { return requests_.idle(); }
  std::int32_t running() const { return lanes_->running(); }  ///< sequences that hold memory
  std::int32_t waiting() const { return requests_.unfinished() - running(); }  ///< that do not

  EngineUsage usage() const;
  /// Tokens of the prompt that were run or resumed, between steps; 0: it has not started, or has
  /// ended.
  std::int32_t prompt_progress(RequestId request) const;

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
  SnapshotTier* tier() { return tier_.get(); }  ///< null: there is none

  /// From now on every request is recorded (null: no more). The recorder outlives the engine.
  void record(TraceRecorder* recorder) { requests_.record(recorder); }

  /// Checks that every page and slot is accounted for. Throws on a bug of ours.
  void audit() const;

 private:
  std::unique_ptr<Lanes> make_lanes(const EngineOptions& options);
  bool run_step();
  void finish_step();
  bool may_run_ahead();
  void drain(std::optional<RequestId> cancelled = std::nullopt);
  void finish_beside(std::optional<RequestId> cancelled = std::nullopt);
  void settle();
  void carry_out();
  void recover(const Error& error);
  void limit_length();
  void learn_cost(const FinishedStep& done);

  // These say what becomes of sequences.
  void apply(const BesideStep& ended, std::optional<RequestId> cancelled = std::nullopt);
  template <typename Wanted>
  void apply_results(const FinishedStep& done, const Wanted& is_wanted,
                     std::optional<RequestId> cancelled = std::nullopt);
  void apply_result(const FinishedStep& done, const Assignment& entry,
                    std::optional<std::size_t> row, const BranchResults& branches);
  void apply_tokens(const FinishedStep& done, const Assignment& entry,
                    std::optional<std::size_t> row);
  void apply_drafts(const FinishedStep& done, const Assignment& entry, std::size_t row,
                    const BranchResults& branches);
  void finish(Sequence& sequence);
  void end_with_error(Sequence& sequence, std::string text);

  const Tokenizer* tokenizer_;
  std::int32_t vocab_, length_asked_;
  bool audits_;
  bool cuts_are_exact_;  ///< a prompt cut elsewhere gives the same bits
  std::function<Clock::time_point()> now_;
  Side answers_;
  StepPipeline steps_;
  std::unique_ptr<Speculation> speculation_;  ///< null: it is off
  std::unique_ptr<SnapshotTier> tier_;        ///< null: there is none
  std::unique_ptr<Lanes> lanes_;
  Requests requests_;
  std::int32_t length_max_;
  ChunkPace pace_;
  std::optional<PrefillMeter> prefill_;  ///< empty: the cost of prefill is not measured
  bool in_step_ = false;
  bool has_newcomers_ = false;  ///< since lanes last said what comes next
};

}  // namespace hyb
