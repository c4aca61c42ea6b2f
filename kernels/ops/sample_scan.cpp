#include <cmath>
#include <limits>

#include "kernels/ops/sample_routes.h"

namespace hyb::kernels {

LargestLogit largest_logit(const float* logits, std::int32_t count) {
  LargestLogit best{-std::numeric_limits<float>::infinity(), 0, true};
  for (std::int32_t i = 0; i < count; ++i) {
    if (std::isnan(logits[i])) return {logits[i], i, false};
    if (logits[i] > best.value) best = {logits[i], i, true};
  }
  return best;
}

double weigh_logits(const LogitWeights& job) {
  double sum = 0.0;
  for (std::int32_t i = 0; i < job.count; ++i) {
    float weight = std::exp((job.logits[i] - job.largest) * job.inverse_temperature);
    if (weight < job.floor) weight = 0.0F;
    if (job.weights != nullptr) job.weights[i] = weight;
    sum += weight;
  }
  return sum;
}

}  // namespace hyb::kernels
