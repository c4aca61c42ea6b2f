#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/ops/sample.h"

/// What sampling on a card gives to its kernel and gets back. Included by .cu files only.
namespace hyb::kernels::cuda {

/// What adjust_logits does to one token of a row, in its order.
struct TokenAdjustment {
  std::int32_t token;
  std::int32_t biases = 0;  ///< how many, from first_bias on, one after the other
  std::int32_t first_bias = 0;
  bool is_penalized = false;  ///< by the repetition penalty, then by `penalty`
  bool is_banned = false;
  float penalty = 0.0F;  ///< frequency and presence: subtracted where the token was generated
};

/// What one row asks for, with the places of its own tables: a recorded launch finds them anew at
/// every replay.
struct SampleJob {
  float temperature, inverse_temperature, top_p, min_p, repetition_penalty;
  std::int32_t top_k;  ///< 0: off
  std::int32_t logprobs;
  std::int32_t adjustments;
  const TokenAdjustment* adjustment;
  const float* biases;  ///< of all rows: TokenAdjustment::first_bias counts from here
  float* saved;         ///< room for a logit per adjustment
  double draw;          ///< uniform in [0, 1)
  bool is_wanted;       ///< false: nothing is drawn, the token is 0
};

/// All on the device.
struct SampleTables {
  const SampleJob* jobs;  ///< one per row
  SampledToken* out;
  std::int32_t* tokens;  ///< as DeviceSampler::draw says; null: not wanted
};

/// A row's adjustments are written into its logits [rows, vocab_used or more], and taken back.
void launch_sample(Stream& stream, const Tensor& logits, std::int32_t vocab_used,
                   const SampleTables& tables);

}  // namespace hyb::kernels::cuda
