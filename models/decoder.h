#pragma once

#include <vector>

#include "models/geometry.h"
#include "models/parts/part.h"
#include "models/plan.h"
#include "models/store.h"
#include "models/weights.h"

namespace hyb::models {

/// Runs a plan: embeds the tokens of a step, adds every block's parts to the residual stream, and
/// computes the logits of the sampled rows. Knows no family and no part.
///
/// Where the plan has a draft layer, entry j of that layer's pages is made of token j and of the
/// hidden state of position j - 1 (zeros for the first), so it depends on the sequence up to j
/// alone, like every other. A hidden state is the final norm's output, or f of Eagle3. A step
/// writes the entries of all its tokens, which takes no attention; the hidden state of a sequence's
/// last position is kept in the slot, those of drafts in the ring, or without slots those of all
/// positions in the pages. Entry j of Dflash's layers is made of what position j left in the model,
/// and nothing else is kept for them.
class Decoder {
 public:
  /// All but `limits` outlive the decoder.
  Decoder(kernels::Queue& queue, const Plan& plan, const Weights& weights, const Store& store,
          const Geometry& geometry, const StepLimits& limits);

  /// Runs the spans of `tables`; pages and slots in them are written. Returns f32 logits
  /// [rows, vocab] of the tokens in `sample_rows` (i32 indices into the step's tokens), valid until
  /// the next call. Without `draft_entries`, which is for the CPU, the draft layers' entries of
  /// these tokens and the hidden states after them are zeros: drafts find nothing there.
  kernels::Tensor run(const StepTables& tables, const kernels::Tensor& sample_rows,
                      bool draft_entries);

  /// What the last run() took for draft entries; 0 where they were not wanted. Of the CPU.
  double draft_entry_seconds() const { return draft_entry_seconds_; }

  /// Moves states on by the entries of rings, without a step: `tables` has those of rings alone.
  void advance(const StepTables& tables);

  /// Of a plan with a draft layer: logits [rows, vocab] of the tokens after those of the step, one
  /// for every sequence, in the order of `sample_rows`. The first time after a step they are what
  /// is known and has not run; then, for the first of these sequences, at the positions after it,
  /// what was drawn from the last logits (`is_further`). Writes the layer's entries of these
  /// positions, which run() writes again, and nothing else: the tables have no slots to write.
  /// Valid until the next call of either.
  kernels::Tensor draft(const StepTables& tables, const kernels::Tensor& sample_rows,
                        bool is_further);

  /// Of a plan with Dflash: logits [rows, vocab] of the sampled tokens of blocks, whose tables are
  /// StepStaging::stage_blocks'. Writes the draft layers' entries of the blocks' positions, which
  /// run() writes again. Valid until the next call of any.
  kernels::Tensor draft_blocks(const StepTables& tables, const kernels::Tensor& sample_rows);

  std::size_t scratch_bytes() const;

  /// What a decoder of this plan takes, before one is made.
  static std::size_t scratch_bytes(const Plan& plan, kernels::Device device, DType activation,
                                   const StepLimits& limits);

 private:
  struct Ordinals;
  PartMemory memory_of(const Part& part, Ordinals& ordinals) const;
  void norm_rows(Norm kind, const kernels::Tensor& weight, const kernels::Tensor& x,
                 const kernels::Tensor& y) const;
  /// The residual stream, or the active one, and room beside it, each [T,H]; `branch` where a block
  /// has a post norm, `part` where parts have.
  struct Streams {
    kernels::Tensor residual, normed, branch = {}, part = {};
    kernels::Tensor inputs = {};               ///< [T,layers*width], as Plan::layer_inputs
    kernels::Tensor all = {}, predicted = {};  ///< [T,n*H], as Plan::altup
    kernels::Tensor router = {};               ///< [T,n] of these, f32
    kernels::Tensor low_rank = {};             ///< [T,rank], of the widest low-rank residual
    kernels::Tensor taps = {};                 ///< [T,n*H], as DraftLayer::taps
    float norm_eps;

    /// One of those side by side in `all` or `predicted`.
    kernels::Tensor stream(const kernels::Tensor& side_by_side, std::int64_t number) const {
      const std::int64_t width = residual.dim(1);
      return side_by_side.columns(number * width, width);
    }
  };
  Streams take_streams(std::int64_t tokens, bool has_taps);
  void make_inputs(const StepTables& tables, const kernels::Tensor& embedding,
                   const Streams& streams);
  void spread(const Streams& streams);
  kernels::Tensor unite(const Streams& streams);
  void route(const AltUpWeights& weights, const kernels::Tensor& active, const Streams& streams);
  void correct(const AltUpWeights& weights, const Streams& streams);
  void add_low_rank(const BlockWeights& weights, const Streams& streams);
  PartCall plain_call(const StepTables& tables, const kernels::Tensor& x, float norm_eps);
  PartCall input_of(const Block& block, const BlockWeights& weights, const StepTables& tables,
                    const Streams& streams);
  void run_block(const Block& block, const BlockWeights& weights, const StepTables& tables,
                 const Streams& streams, Ordinals& ordinals);
  void run_layer(const Layer& layer, const LayerWeights& weights, const StepTables& tables,
                 const Streams& streams, Ordinals& ordinals);
  void advance_layer(const Layer& layer, const LayerWeights& weights, Ordinals& ordinals,
                     const PartCall& call);
  kernels::Tensor logits(const kernels::Tensor& residual, const kernels::Tensor& sample_rows);
  kernels::Tensor head_logits(const kernels::Weight& head, const kernels::Tensor& x,
                              const kernels::InputNorm& norm, float scale, float cap);
  void copy_rows(const kernels::Tensor& x, const kernels::Tensor& y);
  Ordinals draft_ordinals() const;
  PartMemory carry() const;
  kernels::Tensor carried_with_ring(const PartCall& call, const kernels::Tensor& hidden);
  void carry_over(const PartCall& call, const kernels::Tensor& hidden, const kernels::Tensor& y,
                  bool keeps);
  void carry_in_pages(const PartCall& call, const kernels::Tensor& hidden, const kernels::Tensor& y,
                      bool keeps);
  void tap(std::size_t layer, const Streams& streams);
  void find_hidden(const Streams& streams);
  void join(const StepTables& tables, const kernels::Tensor& hidden, const kernels::Tensor& pairs,
            const Streams& streams);
  PartCall draft_input(const StepTables& tables, const kernels::Tensor& pairs,
                       const Streams& streams);
  void write_draft_keys(const StepTables& tables, const Streams& streams);
  void write_block_keys(const StepTables& tables, const Streams& streams);
  void write_draft_entries(const StepTables& tables, const Streams& streams);
  void clear_draft_entries(const StepTables& tables, const Streams& streams);
  void run_draft_layers(const StepTables& tables, const kernels::Tensor& pairs,
                        const Streams& streams);
  kernels::Tensor draft_logits(const Streams& streams, const kernels::Tensor& sample_rows);

  kernels::Queue& queue_;
  const Plan& plan_;
  const Weights& weights_;
  const Store& store_;
  const Geometry& geometry_;
  DType activation_;
  Scratch scratch_;
  // What ops keep for themselves from call to call: zeros at the start.
  std::vector<kernels::Buffer> workspaces_;  // by kind of part
  kernels::Buffer semaphores_;
  std::vector<std::size_t> pages_of_layer_;  // index in the store of a layer's last part with pages
  kernels::Buffer draft_hidden_;             // [rows, H] of the drafts drawn last
  kernels::Buffer row_numbers_;              // 0, 1, 2, ..., where taps are copied
  kernels::Buffer zeros_;                    // the hidden state of tokens without draft entries
  double draft_entry_seconds_ = 0;
};

}  // namespace hyb::models
