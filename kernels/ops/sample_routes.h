#pragma once

#include <cstdint>

namespace hyb::kernels {

/// The passes over a whole row of logits that sampling consists of; one body per ISA level.
struct LargestLogit {
  float value;
  std::int32_t index;  ///< the first of equals
  bool is_number;      ///< false: some logit is NaN, and the rest means nothing
};

/// weights[i] = exp((logits[i] - largest) * inverse_temperature), those below `floor` become 0.
struct LogitWeights {
  const float* logits;
  std::int32_t count;
  float largest, inverse_temperature, floor;
  float* weights;  ///< or null: only the sum is wanted
};

LargestLogit largest_logit(const float* logits, std::int32_t count);
double weigh_logits(const LogitWeights& job);  ///< returns the sum of the weights

namespace avx2 {
LargestLogit largest_logit(const float* logits, std::int32_t count);
double weigh_logits(const LogitWeights& job);
}  // namespace avx2

namespace avx512 {
LargestLogit largest_logit(const float* logits, std::int32_t count);
double weigh_logits(const LogitWeights& job);
}  // namespace avx512

}  // namespace hyb::kernels
