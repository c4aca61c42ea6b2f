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

namespace hyb::models {

/// Whether a span continues the previous one of the step. Such spans are a chain: one sequence, cut
/// where its recurrent state is needed. Spans of one chain share slots, or without slots page
/// tables.
bool continues(const Span& before, const Span& span);
bool has_chain(const Step& step);

/// The rules for a step of a model with recurrent state: spans write different slots, and one reads
/// what another writes only where it continues it, with the next position and the same page tables.
/// Branches write none. A violation is a bug of the caller.
void check_chains(const Step& step);

/// Whether recurrent layers take the span by way of its ring.
bool uses_ring(const Span& span);

/// Turns core's steps into the tables that a decoder reads.
class StepStaging {
 public:
  struct Limits {
    std::int64_t tokens;             ///< most tokens of a step
    std::int64_t spans;              ///< most spans of a step
    std::int64_t rows;               ///< most sampled rows of a step
    std::int64_t pages;              ///< most pages of a span's table
    std::int64_t groups;             ///< page groups
    std::int64_t ring_spans = 0;     ///< most spans of a step with a ring
    std::int64_t ring_tokens = 0;    ///< entries of a ring
    std::int64_t hidden_group = -1;  ///< whose pages have hidden states; -1: none have
    std::int64_t page_tokens = 0;
    bool has_blocks = false;  ///< stage_blocks() is called

    /// Most rows in RingTables::from.
    std::int64_t ring_rows() const;
  };

  struct Staged {
    StepTables tables;
    kernels::Tensor sample_rows;  ///< [rows] tokens whose logits are needed; empty for none
  };

  /// The queue outlives it. Throws Error(memory) when there is not enough memory.
  StepStaging(kernels::Queue& queue, const Limits& limits);

  /// The tables of a step within the limits, valid until the next call; rows are sampled in its
  /// order, whatever that of the tables is. With `rows`, padded to that
  /// many spans and sampled rows: every span of the step has one token, which is sampled, and the
  /// padding has neither slots nor pages. `keeps_tokens`: the table of tokens on the card keeps its
  /// contents; those of the step are not read. That table always has the same address.
  Staged stage(const Step& step, std::int64_t rows = 0, bool keeps_tokens = false);

  /// The tables of blocks of drafts: chains of spans of one token.
  Staged stage_blocks(const Step& step);

  /// The tables of an order: none but a ring's.
  StepTables stage(const AdvanceSlot& order);

  static std::size_t bytes(const Limits& limits);

  /// StepTables::positions of a step whose longest sequence has `positions`: 1024 times a power of
  /// four, so that a growing sequence meets few of them.
  static std::int64_t positions_class(std::int64_t positions);

 private:
  void arrange(const Step& step);
  void stage_tables(const Step& step, std::int64_t spans, std::int64_t tokens,
                    std::int64_t samples);
  void stage_block_ends(const Step& step);
  void stage_tokens(std::int64_t tokens);
  void stage_spans(const Step& step, std::int64_t spans, std::int64_t samples);
  void stage_rings();
  void stage_hidden();
  void stage_pages(std::int64_t spans);
  std::int32_t ring_row(RingId ring, std::int32_t entry) const;

  std::unique_ptr<kernels::StagedTables> room_;
  std::int64_t groups_, ring_tokens_, hidden_group_, page_tokens_;
  bool is_card_;
  std::vector<const Span*> spans_;           ///< of the step, those with a ring last
  std::vector<std::int32_t> first_tokens_;   ///< of its spans, in the step's own order
  std::vector<kernels::Tensor> page_begin_;  ///< of the step, by page group
  kernels::Tensor block_end_;                ///< as StepTables has it
  Staged staged_;
};

/// Whether every span has one token, which is sampled, and is in no chain.
bool is_decode(const Step& step);

/// Which steps a card replays from recordings (CUDA graphs). The answers are the same.
struct GraphOptions {
  bool decode = true;  ///< steps of one token per sequence
  bool mixed = true;   ///< steps with more tokens, whose shapes recur

  bool operator==(const GraphOptions&) const = default;
};

/// Runs steps through a decoder. On a card it samples as well; decode steps are padded to one of a
/// few numbers of rows, and a step of a known shape is replayed from its recording: one call
/// instead of hundreds.
class StepGraphs {
 public:
  /// All but the options outlive it. `rows_max`: most sequences of a step; ids from `vocab_used` on
  /// are never sampled; `sampler` is null on the CPU.
  StepGraphs(kernels::Queue& queue, Decoder& decoder, StepStaging& staging,
             kernels::DeviceSampler* sampler, std::int64_t rows_max, std::int32_t vocab_used,
             const GraphOptions& options);

  /// On the CPU: logits of the sampled rows, in the order of the spans, as Decoder::run returns
  /// them.
  kernels::Tensor run(const Step& step);

  /// From the next step on. A change drops what was recorded.
  void set_options(const GraphOptions& options);

  /// Uploads the tables of a step to the card, where the previous one may still be running. `rows`
  /// are its sampled rows. `keeps_tokens`: it is a decode step, and its tokens are those that the
  /// previous step samples.
  void stage(const Step& step, std::span<const kernels::SampleRow> rows, bool keeps_tokens);

  struct Launched {
    kernels::Tensor logits;  ///< as run()'s, followed by rows of padding
    kernels::Tensor tokens;  ///< as DeviceSampler::draw leaves them, on the card, one per row
  };
  /// Starts the step that was staged last; may be called once. Empty where nothing is sampled.
  Launched launch();

  /// Frees the card's memory of all recordings, once their work is done; shapes that recur are
  /// recorded again.
  void drop();

  /// Recordings made so far.
  std::int32_t recorded() const { return recorded_; }
  /// Steps that were replayed from one.
  std::int64_t replayed() const { return replayed_; }

  /// The number of rows that a decode step is padded to: 1, 2, 4, 8, then multiples of 8.
  static std::int64_t padded_rows(std::int64_t rows, std::int64_t rows_max);

 private:
  /// What a recording depends on: sizes, what the decoder does with them, and the address of the
  /// table whose size changes.
  struct Shape {
    std::int64_t tokens, spans, samples, positions, ring_spans, ring_tokens;
    bool single_tokens;
    const void* pages;
    bool operator==(const Shape&) const = default;
  };
  struct Entry {
    Shape shape;
    std::uint64_t last_use;
    std::unique_ptr<kernels::Recording> recording;  ///< null: seen once
    Launched launched;
  };

  Entry& entry_of(const Shape& shape);
  void record(Entry& entry);
  Launched run_staged();

  kernels::Queue& queue_;
  Decoder& decoder_;
  StepStaging& staging_;
  kernels::DeviceSampler* sampler_;
  std::int64_t rows_max_;
  std::int32_t vocab_used_;
  GraphOptions options_;
  StepStaging::Staged staged_;
  bool is_decode_ = false;  ///< what is staged
  std::vector<Entry> entries_;
  std::uint64_t uses_ = 0;
  std::int32_t recorded_ = 0;
  std::int64_t replayed_ = 0;
};

}  // namespace hyb::models
