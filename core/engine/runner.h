#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/sampling.h"
#include "core/memory/orders.h"
#include "core/memory/pool/layout.h"

namespace hyb {

/// Most drafts of a span.
inline constexpr std::int32_t drafts_max = 7;

/// One sequence's consecutive tokens in a step: a chunk of its prompt, one token, or drafts. Where
/// its state is wanted within a chunk, the chunk is several consecutive spans: each continues where
/// the previous one ends, in the same tables, and reads the slot that the previous one writes.
struct Span {
  std::span<const TokenId> tokens;
  std::int32_t position;              ///< of tokens[0]
  std::span<const PageTable> tables;  ///< one per page group, room for all these tokens
  SlotId read_slot;   ///< state before tokens[0], or before the ring's entries; no_slot: zeros
  SlotId write_slot;  ///< state after the last token that is not a draft
  std::vector<SampleRow> samples = {};

  /// The last ones of `tokens` that are guesses. Their keys and values are written to the pages
  /// like any token's. Where there are recurrent layers their inputs to these are written to the
  /// ring, the first draft's to entry 0, after its entries were read. The token before the first
  /// draft and each draft has a sampled row: what plain decoding draws there, if the drafts before
  /// are right.
  std::int32_t drafts = 0;
  RingId ring = no_ring;  ///< no_ring: neither entries nor drafts, or no recurrent layers
  /// Ring to which a branch writes its drafts; entries are read from `ring` before any are written.
  ///
  /// A branch has other drafts of the sequence of an earlier span of the step that is none. Both
  /// have the same position, certain token, slot and entries to read. A branch has no write slot,
  /// and that span writes another slot than both read. Their tables are the same up to the first
  /// page that is written. Only those rows of a branch are sampled that no earlier span has.
  RingId branch_ring = no_ring;
  /// Entries [0, ring_entries) of the ring are the tokens between the state of read_slot and
  /// tokens[0], in every recurrent layer: drafts of an earlier step that were right.
  std::int32_t ring_entries = 0;
};

/// One call of the model.
struct Step {
  std::vector<Order> orders;
  std::vector<Span> spans;
  bool keep_logits = false;  ///< for what compares runners; the engine keeps none
  /// Says whether what only Runner::draft reads of these tokens is wanted. Where it is not, a
  /// runner may leave it out: then drafts find nothing there, as in a session that had no drafts.
  bool draft_entries = true;
};

struct StepResult {
  std::vector<SampledToken> sampled;  ///< one per SampleRow, in the order of the spans
  std::vector<float> logits;          ///< [rows, vocab or more] when keep_logits
  /// Seconds it took to compute what only drafts read; 0: nothing that leaving it out would save.
  double draft_entry_seconds = 0;
};

struct Capacity {
  MemoryLayout memory;
  std::int32_t step_tokens;    ///< most tokens in one step
  std::int32_t sequences_max;  ///< most sequences in one step
  std::int32_t vocab;
  std::int32_t step_spans = 0;  ///< most spans in one step; below sequences_max: sequences_max
  /// Most sampled rows in one step; below sequences_max: sequences_max. Spans have drafts only
  /// where this is more.
  std::int32_t step_samples = 0;
  /// Most branches in one step, beyond its step_spans.
  std::int32_t step_branches = 0;
};

/// The process that had a step has ended: nothing is known of what the step was to write, and
/// nothing writes there any more. The next step finds another process.
class StepLost : public Error {
 public:
  explicit StepLost(const std::string& text) : Error(ErrorKind::runtime, text) {}
};

/// Returns the ring that a span writes its drafts to.
inline RingId ring_of_drafts(const Span& span) {
  return span.branch_ring == no_ring ? span.ring : span.branch_ring;
}

/// Declares what the engine needs from a model. It is the one interface that core declares and a
/// higher room implements.
class Runner : public UnitBytes {
 public:
  virtual Capacity capacity() const = 0;

  /// Carries out the orders, then all spans; there may be orders alone. The result depends only on
  /// the tokens and the memory named, never on what else is in the step. What one span writes (its
  /// write slot, its positions in its pages) no other span of the step reads or writes, except
  /// those of its own sequence that continue it. Views in the step live until run() returns. Throws
  /// Error when the step cannot be carried out; what it was to write is then never read.
  virtual StepResult run(const Step& step) = 0;

  /// Returns whether steps are asynchronous: then run() is also available in two parts, launch(),
  /// until whose return views in the step live, and wait(). Until wait() returns there are no
  /// reads, writes or draws; then the step has run, also one without sampled rows. launch() is
  /// called when no step is running; one more may follow it by launch_prepared(), and wait() is for
  /// the older of the two. What either throws ends the step, as in run(): then the one launched
  /// after it is waited for as well, and its result means nothing. Where this is false none of the
  /// four below is called.
  virtual bool is_async() const { return false; }
  /// While a launched step runs: whether it has run, so that wait() returns at once. Only called on
  /// the runner of a prefill lane. There steps run beside those of the other lane's runner, have no
  /// orders unless they are in memory of their own, and none follows by launch_prepared(); views in
  /// the step live until wait() returns. In shared memory wait() may throw StepLost: what it had is
  /// run again, without an error.
  virtual bool is_done();
  virtual void launch(const Step& step);
  virtual StepResult wait();

  /// Called while one step runs in which every span has one sampled row, its last token's, and no
  /// drafts: prepares the step that may come next. It has the same sequences in the same order, one
  /// token each, which is the one that the running step draws: its value in `next` means nothing,
  /// and history ends before it, so no row has penalties. There are no orders. Views live until
  /// this returns. It is launched by launch_prepared(), before or after the running step's wait(),
  /// or never, when launch() comes first; until then it has read and written nothing that another
  /// step may see. Launched before, it runs also where the token that it gets ends a sequence, or
  /// is none: what it computes for that sequence is not read. What prepare() and launch_prepared()
  /// throw leaves the running step as it is.
  virtual void prepare(const Step& next);
  virtual void launch_prepared();

  /// Returns whether there is a part of the model that drafts.
  virtual bool can_draft() const { return false; }

  /// Called between steps, if can_draft(): carries out the orders, then guesses for every span,
  /// whose one token has not run yet, the `drafts` tokens that will be drawn after it; fewer where
  /// one is not finite. Its sampled row says how they are drawn. Tables, slot and ring are as for a
  /// step, the pages with room for the drafts; write_slot is no_slot. Slots and rings are read
  /// alone, and of pages nothing changes below the span's position. Throws as run() does.
  virtual std::vector<std::vector<SampledToken>> draft(const Step& step);

  /// Returns whether the device has memory for a superblock, so that its next owner gets it for
  /// sure. Where it has none and `may_create`, tries to allocate some. A step may be running. The
  /// default: it always has.
  virtual bool commit(SuperblockId superblock, bool may_create);

  /// After a step that lacked memory: releases caches on the device that it can rebuild.
  virtual void release_caches() {}

  /// Says what the runner holds on its device, in words, for messages; empty: nothing to report.
  virtual std::string holdings() const { return {}; }
};

}  // namespace hyb
