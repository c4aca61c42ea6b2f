#pragma once

#include <memory>

#include "models/drafting/draft_runner.h"
#include "models/layer_runner.h"

namespace hyb::models {

/// Runs a plan: embeds the tokens of a step, adds every block's parts to the residual stream, and
/// computes the logits of the sampled rows. Knows no family and no part.
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

  /// Seconds that the last run() took for draft entries; 0 where they were not wanted, and on a
  /// card.
  double draft_entry_seconds() const { return draft_entry_seconds_; }

  /// Moves states on by the entries of rings, without a step: `tables` has those of rings alone.
  void advance(const StepTables& tables);

  /// Drafts as DraftRunner::draft() does, for a plan with a draft layer. Valid until the next call
  /// of this or run().
  kernels::Tensor draft(const StepTables& tables, const kernels::Tensor& sample_rows,
                        bool is_further);

  std::size_t scratch_bytes() const;

  /// Counts what a decoder of this plan takes, before one is made.
  static std::size_t scratch_bytes(const Plan& plan, kernels::Device device, DType activation,
                                   const StepLimits& limits);

 private:
  void make_inputs(const StepTables& tables, const kernels::Tensor& embedding,
                   const Streams& streams);
  void spread(const Streams& streams);
  kernels::Tensor unite(const Streams& streams);
  void tap(std::size_t layer, const Streams& streams);
  kernels::Tensor logits(const kernels::Tensor& residual, const kernels::Tensor& sample_rows);

  kernels::Queue& queue_;
  const Plan& plan_;
  const Weights& weights_;
  LayerRunner layers_;
  std::unique_ptr<DraftRunner> draft_runner_;  ///< where the plan has a draft layer
  double draft_entry_seconds_ = 0;
};

}  // namespace hyb::models
