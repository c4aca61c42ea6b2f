#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/sampling.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Chooses a token for every row of logits, as its parameters say, in the order of
/// SamplingNumbers. Banned tokens drop out first, and those that a row's mask leaves out. The
/// repetition penalty is for tokens of the whole history (logit > 0 ? logit / penalty : logit *
/// penalty), the frequency penalty times count and the presence penalty once for generated ones;
/// biases come after them. Then one draw, Philox4x32-10 keyed by `seed` at counter `draw`.
///
/// shapes  logits [R,V]; rows may be strided; ids vocab_used..V-1 are padding, never read
///         rows, out [R]   workspace: sample_workspace_bytes
/// types   logits: f32   workspace: any
/// writes  out and workspace. Never garbage: a row that cannot be sampled is not `finite`: a logit
///         is NaN or plus infinity, or no token is left above minus infinity
/// errors  Error(usage) for a row whose parameters are out of range, as check() of them
struct Sample {
  Tensor logits;
  std::int32_t vocab_used = 0;
  std::span<const SampleRow> rows;
  std::span<SampledToken> out;
  Tensor workspace;
};

/// Below it a temperature is 0: logits divided by it leave no second token a chance.
inline constexpr float temperature_min = 1e-5F;

/// Throws as sample() does for rows over a vocabulary of `vocab_used` ids.
void check_rows(std::span<const SampleRow> rows, std::int32_t vocab_used);

/// A card needs none: its queue has what it stages.
std::size_t sample_workspace_bytes(Device device, std::int64_t vocab, int threads);

void sample(Queue& queue, const Sample& op);

}  // namespace hyb::kernels
