#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/runner.h"
#include "kernels/buffer.h"
#include "kernels/ops/device_sampler.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::models {

/// Draws the tokens of sampled rows: owns the list of a step's rows, the workspace of the draw, and
/// on a card its sampler.
class RowSampler {
 public:
  struct Sizes {
    std::int32_t vocab, vocab_used;  ///< ids from vocab_used on are never drawn
    std::int32_t rows;               ///< most sampled rows of a step
  };

  /// The queue outlives it. Throws Error(memory).
  RowSampler(kernels::Queue& queue, const Sizes& sizes);

  /// Bytes of the workspace, beside those of a card's sampler.
  std::size_t workspace_bytes() const { return workspace_.bytes(); }

  /// Null on the CPU.
  kernels::DeviceSampler* on_card() const { return on_card_.get(); }

  /// The sampled rows of a step in the order of its spans; valid until the next call of this or of
  /// draw().
  std::span<const SampleRow> rows_of(const Step& step);

  /// Draws these rows from f32 logits [rows or more, vocab], and waits. On a card no other draw is
  /// under way.
  std::vector<SampledToken> draw(const Step& step, const kernels::Tensor& logits);

 private:
  kernels::Queue& queue_;
  std::int32_t vocab_used_;
  kernels::Buffer workspace_;
  std::unique_ptr<kernels::DeviceSampler> on_card_;
  std::vector<SampleRow> rows_;
};

}  // namespace hyb::models
