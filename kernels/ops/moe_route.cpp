#include "kernels/ops/moe_route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

using Scores = std::array<float, route_experts_max>;
/// A NaN counts as this in the choice.
constexpr float lost_key = -std::numeric_limits<float>::infinity();

void check(const MoeRoute& op) {
  const Check check("moe_route");
  check.activations(op.logits, "logits");
  check.that(op.logits.rank == 2, "logits is a matrix", op.logits.rank);
  const std::int64_t experts = op.logits.dim(1);
  check.that(op.chosen.rank == 2, "chosen is a matrix", op.chosen.rank);
  check_routing("moe_route", op.routing, experts, op.chosen.dim(1));
  check.tensor(op.chosen, "chosen", DType::i32, {op.logits.dim(0), op.chosen.dim(1)});
  check.tensor(op.weights, "weights", DType::f32, {op.logits.dim(0), op.chosen.dim(1)});
  if (!op.bias.empty()) check.tensor(op.bias, "bias", DType::f32, {experts});
  if (!op.expert_scale.empty()) {
    check.tensor(op.expert_scale, "expert_scale", DType::f32, {experts});
  }
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

/// The largest first, of equals the lower index; a NaN is out of the choice.
void select(const float* keys, std::int64_t keys_count, std::int64_t count, std::int32_t* chosen) {
  std::array<std::int32_t, route_experts_max> order;
  std::int32_t* end = order.data();
  for (std::int64_t i = 0; i < keys_count; ++i) {
    if (!std::isnan(keys[i])) *end++ = static_cast<std::int32_t>(i);
  }
  const auto comes_first = [&](std::int32_t a, std::int32_t b) {
    return keys[a] > keys[b] || (keys[a] == keys[b] && a < b);
  };
  std::partial_sort(order.data(), order.data() + count, end, comes_first);
  std::copy_n(order.data(), count, chosen);
}

/// The sum of the two largest, of which there are two.
float group_score(const float* keys, std::int64_t count) {
  float best = lost_key, second = lost_key;
  for (std::int64_t i = 0; i < count; ++i) {
    if (keys[i] > best) {
      second = best;
      best = keys[i];
    } else if (keys[i] > second) {
      second = keys[i];
    }
  }
  const float sum = best + second;  // NaN for infinities of both signs
  return std::isnan(sum) ? lost_key : sum;
}

/// Takes the experts of all but the best groups out of the choice.
void drop_groups(const Routing& routing, float* keys, std::int64_t experts) {
  const std::int64_t size = experts / routing.groups;
  std::array<float, route_groups_max> scores;
  std::array<std::int32_t, route_groups_max> kept;
  for (std::int64_t g = 0; g < routing.groups; ++g) {
    scores[static_cast<std::size_t>(g)] = group_score(keys + g * size, size);
  }
  select(scores.data(), routing.groups, routing.active_groups, kept.data());
  const auto kept_end = kept.begin() + routing.active_groups;
  for (std::int64_t g = 0; g < routing.groups; ++g) {
    if (std::find(kept.begin(), kept_end, static_cast<std::int32_t>(g)) != kept_end) continue;
    std::fill_n(keys + g * size, size, std::numeric_limits<float>::quiet_NaN());
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
    keys[e] = std::isnan(key) ? lost_key : key;
    lost = lost || std::isnan(key);
  }
  std::int32_t* const chosen = op.chosen.row<std::int32_t>(t);
  float* const weights = op.weights.row<float>(t);
  if (op.routing.groups > 1) drop_groups(op.routing, keys.data(), experts);
  select(keys.data(), experts, count, chosen);
  for (std::int64_t j = 0; j < count; ++j) weights[j] = scores[static_cast<std::size_t>(chosen[j])];
  weigh(op.routing, weights, count);
  for (std::int64_t j = 0; !op.expert_scale.empty() && j < count; ++j) {
    weights[j] *= op.expert_scale.as<float>()[chosen[j]];
  }
  // Without this a NaN would only lose the choice, and the answer be wrong without a sign of it.
  if (lost) std::fill_n(weights, count, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

void check_routing(const char* op, const Routing& routing, std::int64_t experts,
                   std::int64_t active) {
  const Check check(op);
  check.that(experts >= 1 && experts <= route_experts_max, "at most 4096 experts", experts);
  check.that(active >= 1 && active <= experts, "1 to E experts are chosen", active);
  const std::int64_t groups = routing.groups, size = experts / std::max<std::int64_t>(groups, 1);
  if (groups == 1) return;
  check.that(groups > 1 && groups <= route_groups_max, "1 to 32 groups", groups);
  check.that(size >= 2 && size * groups == experts, "groups divide E into 2 experts or more",
             groups);
  check.that(routing.active_groups >= 1 && routing.active_groups <= groups,
             "1 to all groups are active", routing.active_groups);
  check.that(active <= size * routing.active_groups, "active groups have k experts", active);
}

void moe_route(Queue& queue, const MoeRoute& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::moe_route(stream, op); })) return;
  const std::int64_t work = op.logits.dim(1) * 8;  // an exponential, a comparison
  share(queue, op.logits.dim(0), 1, work, [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.logits.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) route_token<T>(op, t);
    });
  });
}

}  // namespace hyb::kernels
