#pragma once

#include <cmath>

#include "kernels/cuda/reduce.h"
#include "kernels/ops/moe_route.h"

namespace hyb::kernels::cuda {

/// The parameters of moe_route on the device.
struct RouteParams {
  const float *bias, *expert_scale;  ///< null: none
  int experts, active;
  Routing routing;
};

/// Rises with the number, 0 below all of them; both zeros are one, and NaN is minus infinity.
__device__ __forceinline__ unsigned ordered(float value) {
  const float number = std::isnan(value) ? -INFINITY : value + 0.0F;
  const auto bits = std::bit_cast<unsigned>(number);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}
/// The number of which `key` was made.
__device__ __forceinline__ float number_of(unsigned key) {
  return std::bit_cast<float>((key >> 31) != 0 ? key & 0x7fffffffU : ~key);
}

__device__ __forceinline__ float warp_largest(float value) {
  for (int bits = warp_size / 2; bits > 0; bits /= 2) {
    value = fmaxf(value, shuffle_xor(value, bits));
  }
  return value;
}

/// A router's scores of one token, by a warp.
template <typename T>
struct Scores {
  const T* logits;
  Routing::Score kind;
  float largest = 0.0F, sum = 1.0F;  // of softmax

  __device__ float operator()(int expert) const {
    const float logit = to_float(logits[expert]);
    if (kind == Routing::Score::softmax) return expf(logit - largest) / sum;
    if (kind == Routing::Score::sigmoid) return 1.0F / (1.0F + expf(-logit));
    return logit;
  }

  __device__ void sum_up(int lane, int experts) {
    if (kind != Routing::Score::softmax) return;
    largest = -INFINITY;
    for (int e = lane; e < experts; e += warp_size) largest = fmaxf(largest, to_float(logits[e]));
    largest = warp_largest(largest);
    sum = 0.0F;
    for (int e = lane; e < experts; e += warp_size) sum += expf(to_float(logits[e]) - largest);
    sum = warp_sum(sum);
  }
};

/// The largest of this lane's keys that are left; of equals the lowest expert.
struct LaneBest {
  unsigned key = 0;
  int expert = -1;

  __device__ void meet(unsigned other, int at) {
    if (other > key) {
      key = other;
      expert = at;
    }
  }
};

/// Two best keys of `count`, added up; 0 in lanes that have no group.
__device__ __forceinline__ unsigned group_key(const unsigned* keys, int count) {
  unsigned best = 0, second = 0;
  for (int i = 0; i < count; ++i) {
    const unsigned key = keys[i];
    const unsigned lower = key < best ? key : best;
    second = lower > second ? lower : second;
    best = key > best ? key : best;
  }
  return ordered(number_of(best) + number_of(second));
}

/// The groups that the choice is among, a bit for each; a lane owns a group.
__device__ __forceinline__ unsigned active_groups(const RouteParams& p, int lane,
                                                  const unsigned* keys) {
  const auto groups = static_cast<int>(p.routing.groups);
  const int size = p.experts / groups;
  unsigned own = lane < groups ? group_key(keys + lane * size, size) : 0, active = 0;
  for (int i = 0; i < static_cast<int>(p.routing.active_groups); ++i) {
    const unsigned top = reduce_max(own);
    const unsigned group = reduce_min(own == top ? static_cast<unsigned>(lane) : 0xffffffffU);
    active |= 1U << group;
    if (lane == static_cast<int>(group)) own = 0;
  }
  return active;
}

/// Weights of the experts that were chosen, from their scores, which are in `weights`.
__device__ __forceinline__ void weigh_warp(const RouteParams& p, bool lost, int lane,
                                           const std::int32_t* chosen, float* weights) {
  const bool is_softmax = p.routing.score == Routing::Score::softmax_of_selected;
  float sum = 0.0F;
  if (is_softmax) {
    float largest = -INFINITY;
    for (int j = lane; j < p.active; j += warp_size) largest = fmaxf(largest, weights[j]);
    largest = warp_largest(largest);
    for (int j = lane; j < p.active; j += warp_size) weights[j] = expf(weights[j] - largest);
  }
  for (int j = lane; j < p.active; j += warp_size) sum += weights[j];
  sum = warp_sum(sum);
  if (!is_softmax) sum = p.routing.renormalize ? sum + p.routing.renormalize_epsilon : 1.0F;
  for (int j = lane; j < p.active; j += warp_size) {
    const float weight = weights[j] / sum * p.routing.scale;
    const float factor = p.expert_scale == nullptr ? 1.0F : p.expert_scale[chosen[j]];
    weights[j] = lost ? NAN : weight * factor;
  }
}

/// moe_route for one token, by a warp; `keys` is room for `experts` numbers in shared memory. The
/// choice is the plain loop's wherever the scores are: logits are compared as they are, scores of
/// softmax and sigmoid within 4 ulp of the plain loop's. Weights are within (E + 8) * 2^-23.
template <typename T>
__device__ void route_warp(const RouteParams& p, const T* logits, unsigned* keys,
                           std::int32_t* chosen, float* weights) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  Scores<T> score{logits, p.routing.score};
  score.sum_up(lane, p.experts);

  bool lost = false;
  LaneBest best;
  for (int e = lane; e < p.experts; e += warp_size) {
    const float key = p.bias == nullptr ? score(e) : score(e) + p.bias[e];
    lost = lost || std::isnan(key);
    keys[e] = ordered(key);
    best.meet(keys[e], e);
  }
  lost = any_lane(lost);
  if (p.routing.groups > 1) {
    sync_warp();
    const unsigned active = active_groups(p, lane, keys);
    const int size = p.experts / static_cast<int>(p.routing.groups);
    sync_warp();  // all lanes have read the keys
    best = {};
    for (int e = lane; e < p.experts; e += warp_size) {
      if ((active >> e / size & 1U) == 0) keys[e] = 0;
      best.meet(keys[e], e);
    }
  }
  for (int j = 0; j < p.active; ++j) {
    const unsigned top = reduce_max(best.key);
    const auto expert = static_cast<int>(
        reduce_min(best.key == top ? static_cast<unsigned>(best.expert) : 0xffffffffU));
    if (best.expert != expert) continue;
    chosen[j] = expert;
    weights[j] = score(expert);
    keys[expert] = 0;
    best = {};
    for (int e = lane; e < p.experts; e += warp_size) best.meet(keys[e], e);
  }
  sync_warp();
  weigh_warp(p, lost, lane, chosen, weights);
  sync_warp();
}

}  // namespace hyb::kernels::cuda
