#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/staging.h"
#include "kernels/ops/sample_device.h"

namespace hyb::kernels::cuda {

/// The host's side of sampling on a card: what rows ask for becomes tables, the answers come back.
/// Keeps its memory from call to call.
class Sampler {
 public:
  explicit Sampler(Stream& stream) : stream_(stream), staging_(stream), readback_(stream) {}

  /// Waits for the answers.
  void sample(const Sample& op);

 private:
  void add(const SampleRow& row);
  void add_penalties(const SampleRow& row);
  void add_biases(const SampleRow& row);
  /// The row's one adjustment of this token.
  TokenAdjustment& adjustment_of(TokenId token);

  Stream& stream_;
  Staging staging_;
  Readback readback_;
  std::vector<SampleJob> jobs_;
  std::vector<TokenAdjustment> adjustments_;
  std::vector<float> biases_;
  std::vector<std::int32_t> place_of_;   ///< of a token among the row's adjustments, -1: none
  std::vector<std::int32_t> generated_;  ///< by adjustment of the row
  std::size_t row_begin_ = 0;            ///< the row's first adjustment
};

}  // namespace hyb::kernels::cuda
