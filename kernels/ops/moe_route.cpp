#include "kernels/ops/moe_route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

using Scores = std::array<float, route_experts_max>;

void check(const MoeRoute& op) {
  const Check check("moe_route");
  check.activations(op.logits, "logits");
  check.that(op.logits.rank == 2, "logits is a matrix", op.logits.rank);
  const std::int64_t experts = op.logits.dim(1);
  check.that(experts >= 1 && experts <= route_experts_max, "at most 4096 experts", experts);
  check.that(op.chosen.rank == 2 && op.chosen.dim(1) >= 1 && op.chosen.dim(1) <= experts,
             "chosen is 1 to E experts", op.chosen.dim(1));
  check.tensor(op.chosen, "chosen", DType::i32, {op.logits.dim(0), op.chosen.dim(1)});
  check.tensor(op.weights, "weights", DType::f32, {op.logits.dim(0), op.chosen.dim(1)});
  if (!op.bias.empty()) check.tensor(op.bias, "bias", DType::f32, {experts});
}

float largest_of(const float* values, std::int64_t count) {
  float largest = values[0];
  for (std::int64_t i = 1; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

void softmax(float* values, std::int64_t count) {
  const float largest = largest_of(values, count);
  float sum = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = std::exp(values[i] - largest);
    sum += values[i];
  }
  for (std::int64_t i = 0; i < count; ++i) values[i] /= sum;
}

void score(Routing::Score kind, float* scores, std::int64_t experts) {
  if (kind == Routing::Score::softmax) softmax(scores, experts);
  if (kind != Routing::Score::sigmoid) return;
  for (std::int64_t e = 0; e < experts; ++e) scores[e] = 1.0F / (1.0F + std::exp(-scores[e]));
}

/// The largest first; an expert comes after all that are larger, or as large with a lower index.
void select(const float* keys, std::int64_t experts, std::int64_t count, std::int32_t* chosen) {
  float last_key = std::numeric_limits<float>::infinity();
  std::int64_t last = -1;
  for (std::int64_t j = 0; j < count; ++j) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < experts; ++e) {
      const bool left = keys[e] < last_key || (keys[e] == last_key && e > last);
      if (left && (best < 0 || keys[e] > keys[best])) best = e;
    }
    chosen[j] = static_cast<std::int32_t>(best);
    last_key = keys[best];
    last = best;
  }
}

void weigh(const Routing& routing, float* weights, std::int64_t count) {
  if (routing.score == Routing::Score::softmax_of_selected) {
    softmax(weights, count);
  } else if (routing.renormalize) {
    float sum = routing.renormalize_epsilon;
    for (std::int64_t j = 0; j < count; ++j) sum += weights[j];
    for (std::int64_t j = 0; j < count; ++j) weights[j] /= sum;
  }
  for (std::int64_t j = 0; j < count; ++j) weights[j] *= routing.scale;
}

template <typename T>
void route_token(const MoeRoute& op, std::int64_t t) {
  const std::int64_t experts = op.logits.dim(1), count = op.chosen.dim(1);
  Scores scores, keys;
  for (std::int64_t e = 0; e < experts; ++e) {
    scores[static_cast<std::size_t>(e)] = to_float(op.logits.row<T>(t)[e]);
  }
  score(op.routing.score, scores.data(), experts);
  bool lost = false;
  for (std::size_t e = 0; e < static_cast<std::size_t>(experts); ++e) {
    const float key = op.bias.empty() ? scores[e] : scores[e] + op.bias.as<float>()[e];
    keys[e] = std::isnan(key) ? -std::numeric_limits<float>::infinity() : key;
    lost = lost || std::isnan(key);
  }
  std::int32_t* const chosen = op.chosen.row<std::int32_t>(t);
  float* const weights = op.weights.row<float>(t);
  select(keys.data(), experts, count, chosen);
  for (std::int64_t j = 0; j < count; ++j) weights[j] = scores[static_cast<std::size_t>(chosen[j])];
  weigh(op.routing, weights, count);
  // Without this a NaN would only lose the choice, and the answer be wrong without a sign of it.
  if (lost) std::fill_n(weights, count, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

void moe_route(Queue& queue, const MoeRoute& op) {
  check(op);
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::moe_route(queue.stream(), op);
  }
  const std::int64_t work = op.logits.dim(1) * op.chosen.dim(1);
  share(queue, op.logits.dim(0), 1, work, [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.logits.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) route_token<T>(op, t);
    });
  });
}

}  // namespace hyb::kernels
