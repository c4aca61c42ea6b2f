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
class Decoder {
 public:
  /// All but `limits` outlive the decoder.
  Decoder(kernels::Queue& queue, const Plan& plan, const Weights& weights, const Store& store,
          const Geometry& geometry, const StepLimits& limits);

  /// Runs the spans of `tables`; pages and slots in them are written. Returns f32 logits
  /// [rows, vocab] of the tokens in `sample_rows` (i32 indices into the step's tokens), valid until
  /// the next call.
  kernels::Tensor run(const StepTables& tables, const kernels::Tensor& sample_rows);

  /// Moves states on by the entries of rings, without a step: `tables` has those of rings alone.
  void advance(const StepTables& tables);

  std::size_t scratch_bytes() const;

  /// What a decoder of this plan takes, before one is made.
  static std::size_t scratch_bytes(const Plan& plan, kernels::Device device, DType activation,
                                   const StepLimits& limits);

 private:
  struct Ordinals;
  PartMemory memory_of(const Part& part, Ordinals& ordinals) const;
  kernels::InputNorm norm_of(Norm kind, const kernels::Tensor& weight) const;
  PartCall input_of(std::size_t layer, std::size_t block, const StepTables& tables,
                    const kernels::Tensor& residual, const kernels::Tensor& normed);
  kernels::Tensor logits(const kernels::Tensor& residual, const kernels::Tensor& sample_rows);

  kernels::Queue& queue_;
  const Plan& plan_;
  const Weights& weights_;
  const Store& store_;
  std::int32_t page_tokens_;
  DType activation_;
  Scratch scratch_;
  // What ops keep for themselves from call to call: zeros at the start.
  std::vector<kernels::Buffer> workspaces_;  // by kind of part
  kernels::Buffer semaphores_;
};

}  // namespace hyb::models
