#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/runner.h"
#include "kernels/ops/device_sampler.h"
#include "kernels/recording.h"
#include "models/decoder.h"
#include "models/parts/part.h"
#include "models/recordings.h"

namespace hyb::models {

/// Says whether a span continues the previous one of the step. Such spans are a chain: one
/// sequence, cut where its recurrent state is needed. Spans of one chain share slots, or without
/// slots page tables.
bool continues(const Span& before, const Span& span);
bool has_chain(const Step& step);

/// Says whether recurrent layers take the span by way of its ring.
bool uses_ring(const Span& span);

/// Sizes of a step's tables.
struct StepSizes {
  std::int64_t tokens, spans, samples;
  bool operator==(const StepSizes&) const = default;
};

/// Turns core's steps into the tables that a decoder reads.
class StepStaging {
 public:
  struct Limits {
    std::int64_t step_tokens;        ///< most tokens of a step
    std::int64_t spans;              ///< most spans of a step
    std::int64_t rows;               ///< most sampled rows of a step
    std::int64_t pages;              ///< most pages of a span's table
    std::int64_t groups;             ///< page groups
    std::int64_t ring_spans = 0;     ///< most spans of a step with a ring
    std::int64_t ring_tokens = 0;    ///< entries of a ring
    std::int64_t hidden_group = -1;  ///< whose pages have hidden states; -1: none have
    std::int64_t page_tokens = 0;
    bool has_blocks = false;       ///< stage_blocks() is called
    std::int64_t draft_spans = 0;  ///< most spans that drafts are made for at once

    /// Most rows in RingTables::from.
    std::int64_t ring_rows() const;
  };

  struct Staged {
    StepTables tables;
    kernels::Tensor sample_rows;  ///< [rows] tokens whose logits are needed; empty for none
  };

  /// The queue outlives it. Throws Error(memory) when there is not enough memory.
  StepStaging(kernels::Queue& queue, const Limits& limits);

  /// Sizes that are no smaller than a step's own; what is added has neither slots nor pages.
  struct Padding {
    StepSizes sizes;
    bool with_rings = false;  ///< all spans are in the ring tables, where the model has rings
  };

  /// The tables of a step within the limits, valid until the next call; rows are sampled in its
  /// order, whatever that of the tables is. `padding`: null: none. `keeps_tokens`: the table of
  /// tokens on the card keeps its contents; those of the step are not read. That table always has
  /// the same address.
  Staged stage(const Step& step, const Padding* padding = nullptr, bool keeps_tokens = false);

  /// Tables of as many passes of a draft layer as the first span has drafts.
  struct StagedDrafts {
    std::vector<StepTables> passes;
    std::vector<kernels::Tensor> drawn;  ///< of each pass: where the next one reads its tokens
    kernels::Tensor sample_rows;         ///< as Staged's, of every pass
  };

  /// Stages spans as Runner::draft has them, but for their drafts, which are in `drafts`: first the
  /// spans with the most. A pass has those spans that have as many drafts, the others are empty.
  /// Padded to `spans` of them. As the other tables valid until the next call.
  StagedDrafts stage_drafts(const Step& step, std::span<const std::int32_t> drafts,
                            std::int64_t spans);

  /// The tables of blocks of drafts: chains of spans of one token.
  Staged stage_blocks(const Step& step);

  /// The tables of an order: none but a ring's.
  StepTables stage(const AdvanceSlot& order);

  static std::size_t bytes(const Limits& limits);

  /// StepTables::positions of a step whose longest sequence has `positions`: 1024 times a power of
  /// four, so that a growing sequence meets few of them.
  static std::int64_t positions_class(std::int64_t positions);

 private:
  void arrange(const Step& step, bool with_rings);
  void stage_tables(const Step& step, const Padding* padding);
  kernels::Tensor stage_block_ends(const Step& step);
  void stage_tokens(std::int64_t tokens);
  void stage_spans(const Step& step, std::int64_t spans, std::int64_t samples);
  void stage_rings(const Padding* padding);
  void stage_hidden();
  void stage_pages(std::int64_t spans);
  void stage_pass(const Step& step, std::span<const std::int32_t> drafts, StagedDrafts& to);
  std::int32_t ring_row(RingId ring, std::int32_t entry) const;

  std::unique_ptr<kernels::StagedTables> room_;
  std::int64_t groups_, ring_tokens_, hidden_group_, page_tokens_;
  bool is_card_;
  std::vector<const Span*> spans_;           ///< of the step, those in the ring tables last
  std::size_t first_with_ring_ = 0;          ///< of these
  std::vector<std::int32_t> first_tokens_;   ///< of its spans, in the step's own order
  std::vector<kernels::Tensor> page_begin_;  ///< of the step, by page group
  Staged staged_;
};

/// Says whether every span has one token, which is sampled, and is in no chain.
bool is_decode(const Step& step);

/// Says whether every span has one token that is no draft, is sampled and in no chain; and some
/// have drafts or continue from a ring.
bool is_verify(const Step& step);

/// Runs steps through a decoder. On a card it samples as well; decode and verify steps are padded
/// to one of a few sizes, and a step of a known shape is replayed from its recording: one call
/// instead of hundreds.
class StepGraphs {
 public:
  struct Limits {
    std::int64_t rows;  ///< most sequences of a step
    StepSizes step;
    std::int32_t vocab_used;  ///< ids from here on are never sampled
  };

  /// All outlive it. `sampler` is null on the CPU.
  StepGraphs(Decoder& decoder, StepStaging& staging, Recordings& recordings,
             kernels::DeviceSampler* sampler, const Limits& limits)
      : decoder_(decoder),
        staging_(staging),
        recordings_(recordings),
        sampler_(sampler),
        limits_(limits) {}

  /// On the CPU: logits of the sampled rows, in the order of the spans, as Decoder::run returns
  /// them.
  kernels::Tensor run(const Step& step);

  /// Uploads the tables of a step to the card, where the previous one may still be running. `rows`
  /// are its sampled rows. `keeps_tokens`: it is a decode step, and its tokens are those that the
  /// previous step samples.
  void stage(const Step& step, std::span<const SampleRow> rows, bool keeps_tokens);

  /// Starts the step that was staged last; may be called once. Its logits are those of the sampled
  /// rows, as run()'s.
  WorkResult launch();

  /// The number of rows that a decode step is padded to: 1, 2, 4, 8, then multiples of 8.
  static std::int64_t padded_rows(std::int64_t rows, std::int64_t rows_max);

  /// Pads a verify step to these sizes: spans as rows are, tokens and sampled rows to a multiple of
  /// that. So there are as many sizes of a number of spans as numbers of drafts.
  static StepSizes padded_verify(const StepSizes& step, const StepSizes& limits);

 private:
  WorkResult run_staged();

  Decoder& decoder_;
  StepStaging& staging_;
  Recordings& recordings_;
  kernels::DeviceSampler* sampler_;
  Limits limits_;
  StepStaging::Staged staged_;
  bool is_single_ = false;  ///< what is staged: a decode or a verify step
};

}  // namespace hyb::models
