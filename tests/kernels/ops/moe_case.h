#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/ops/moe.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

using Doubles = std::vector<double>;

/// What a mixture of experts may be made of.
struct MoeCase {
  std::int64_t tokens, hidden, experts, active, intermediate, shared = 0;
  Activation activation = gated_silu;
  Routing routing = {};
  bool has_bias = false;
  bool has_shared_gate = false;
  bool router_is_f32 = false;
  std::int64_t latent = 0;
  float scale = 1.0F;
  bool shared_gate_is_f32 = false;
  bool has_biases = false;  ///< of the router's logits and of both products of the experts
  bool weighs_input = false;

  std::int64_t expert_width() const { return latent > 0 ? latent : hidden; }
  MoeShape shape(DType dtype) const {
    return {.tokens = tokens,
            .active = active,
            .experts = experts,
            .hidden = hidden,
            .intermediate = intermediate,
            .shared_intermediate = shared,
            .dtype = dtype,
            .activation = activation,
            .latent = latent,
            .router_dtype = router_is_f32 ? DType::f32 : dtype,
            .has_shared_gate = has_shared_gate,
            .weighs_input = weighs_input};
  }
};

/// One of its matrices.
struct MoeMatrix {
  MoeMatrix(DType type, std::int64_t experts, std::int64_t rows, std::int64_t columns,
            std::uint32_t seed_of)
      : values(random_tensor(
            type, {std::max<std::int64_t>(experts * rows, 1), columns}, seed_of,
            1.0F / std::sqrt(static_cast<float>(std::max<std::int64_t>(columns, 1))))),
        bytes(values.packed()),
        dtype(type),
        seed(seed_of),
        source(experts, rows, columns) {
    if (is_there()) source.append(type, experts * rows, bytes);
  }
  MoeMatrix(const MoeMatrix&) = delete;

  bool is_there() const { return source.rows > 0 && source.columns > 0; }
  double at(std::int64_t row, std::int64_t column) const {
    return static_cast<double>(values.get(row * source.columns + column));
  }

  TestTensor values;
  std::vector<std::byte> bytes;
  DType dtype;
  std::uint32_t seed;
  WeightSource source;
};

/// All of its numbers, and its answer in double.
struct MoeNumbers {
  MoeNumbers(const MoeCase& the_case, DType type) : MoeNumbers(the_case, type, type) {}
  /// With weights of another type than x; the router's stays f32 where it is.
  MoeNumbers(const MoeCase& the_case, DType x_type, DType type)
      : c(the_case),
        dtype(x_type),
        router(c.router_is_f32 ? DType::f32 : type, 1, c.experts, c.hidden, 1),
        gate_up(type, c.experts, c.activation.inputs() * c.intermediate, c.expert_width(), 2),
        down(type, c.experts, c.expert_width(), c.intermediate, 3),
        shared_gate_up(type, 1, c.activation.inputs() * c.shared, c.hidden, 4),
        shared_down(type, 1, c.hidden, c.shared, 5),
        shared_gate(c.shared_gate_is_f32 ? DType::f32 : type, 1, c.has_shared_gate ? 1 : 0,
                    c.hidden, 6),
        latent_in(type, 1, c.latent, c.hidden, 7),
        latent_out(type, 1, c.hidden, c.latent, 8),
        bias(random_tensor(DType::f32, {c.experts}, 9, 0.3F)),
        router_bias(random_tensor(DType::f32, {c.experts}, 12, 0.5F)),
        gate_up_bias(
            random_tensor(DType::f32, {c.experts, c.activation.inputs() * c.intermediate}, 13)),
        down_bias(random_tensor(DType::f32, {c.experts, c.expert_width()}, 14)),
        norm(random_tensor(DType::f32, {c.hidden}, 10, 0.2F)),
        x(random_tensor(x_type, {c.tokens, c.hidden}, 11, 1.0F, {8, 0})) {
    for (std::int64_t i = 0; i < c.hidden; ++i) norm.set(i, norm.get(i) + 1.0F);
  }

  double rounded(double value) const {
    return dtype == DType::bf16 ? to_float(to_bf16(static_cast<float>(value))) : value;
  }

  static double sigmoid(double value) { return 1 / (1 + std::exp(-value)); }

  /// Rows first .. first+count-1 of the matrix times x.
  static Doubles times(const MoeMatrix& matrix, std::int64_t first, std::int64_t count,
                       const Doubles& row) {
    Doubles y(static_cast<std::size_t>(count));
    for (std::int64_t n = 0; n < count; ++n) {
      for (std::size_t k = 0; k < row.size(); ++k) {
        y[static_cast<std::size_t>(n)] +=
            row[k] * matrix.at(first + n, static_cast<std::int64_t>(k));
      }
    }
    return y;
  }

  /// Row e of a bias of the experts is added.
  static void add(const TestTensor& bias, std::int64_t e, Doubles& to) {
    const std::int64_t first = e * std::ssize(to);
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] += static_cast<double>(bias.get(first + static_cast<std::int64_t>(i)));
    }
  }

  Doubles feed_forward(const MoeMatrix& up, const MoeMatrix& back, std::int64_t e,
                       const Doubles& row, bool has_biases = false) const {
    const std::int64_t width = back.source.columns, rows = up.source.rows;
    Doubles both = times(up, e * rows, rows, row), inner(static_cast<std::size_t>(width));
    if (has_biases) add(gate_up_bias, e, both);
    for (double& value : both) value = rounded(value);
    for (std::size_t i = 0; i < inner.size(); ++i) {
      const double factor = c.activation.gated ? both[i + inner.size()] : 0.0;
      inner[i] = rounded(activated(c.activation, both[i], factor));
    }
    Doubles y = times(back, e * back.source.rows, back.source.rows, inner);
    if (has_biases) add(down_bias, e, y);
    return y;
  }

  /// The k experts of a token, and their weights by expert.
  std::vector<std::size_t> choose(const Doubles& logits, Doubles& weights) const;
  /// What the block adds to a row, from its normed row.
  Doubles added(const Doubles& n) const;

  MoeCase c;
  DType dtype;
  MoeMatrix router, gate_up, down, shared_gate_up, shared_down, shared_gate, latent_in, latent_out;
  TestTensor bias, router_bias, gate_up_bias, down_bias, norm, x;
};

/// Indices by falling keys, of equals the lower one first.
inline std::vector<std::size_t> by_falling(const Doubles& keys) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return keys[a] > keys[b]; });
  return order;
}

inline void leave_out_groups(const Routing& routing, Doubles& keys) {
  const auto groups = static_cast<std::size_t>(routing.groups);
  const std::size_t size = keys.size() / groups;
  Doubles scores(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    Doubles own(keys.begin() + static_cast<std::ptrdiff_t>(g * size),
                keys.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(own.rbegin(), own.rend());
    scores[g] = own[0] + own[1];
  }
  const auto order = by_falling(scores);
  for (std::size_t i = static_cast<std::size_t>(routing.active_groups); i < groups; ++i) {
    for (std::size_t e = 0; e < size; ++e) keys[order[i] * size + e] = -INFINITY;
  }
}

inline std::vector<std::size_t> MoeNumbers::choose(const Doubles& logits, Doubles& weights) const {
  Doubles scores = logits;
  double all = 0;
  for (const double logit : logits) all += std::exp(logit);
  for (double& score : scores) {
    if (c.routing.score == Routing::Score::softmax) score = std::exp(score) / all;
    if (c.routing.score == Routing::Score::sigmoid) score = sigmoid(score);
  }
  Doubles keys = scores;
  for (std::size_t e = 0; c.has_bias && e < keys.size(); ++e) {
    keys[e] += static_cast<double>(bias.get(static_cast<std::int64_t>(e)));
  }
  if (c.routing.groups > 1) leave_out_groups(c.routing, keys);
  auto chosen = by_falling(keys);
  chosen.resize(static_cast<std::size_t>(c.active));
  weights.assign(keys.size(), 0.0);
  double sum = 0;
  for (const std::size_t e : chosen) {
    weights[e] =
        c.routing.score == Routing::Score::softmax_of_selected ? std::exp(scores[e]) : scores[e];
    sum += weights[e];
  }
  if (c.routing.score != Routing::Score::softmax_of_selected) {
    sum = c.routing.renormalize ? sum + static_cast<double>(c.routing.renormalize_epsilon) : 1.0;
  }
  for (double& weight : weights) weight *= static_cast<double>(c.routing.scale) / sum;
  return chosen;
}

inline Doubles MoeNumbers::added(const Doubles& n) const {
  Doubles weights, z = n, sum(static_cast<std::size_t>(c.expert_width()));
  if (c.latent > 0) z = times(latent_in, 0, c.latent, n);
  Doubles logits = times(router, 0, c.experts, n);
  if (c.has_biases) add(router_bias, 0, logits);
  const std::vector<std::size_t> chosen = choose(logits, weights);
  for (double& value : z) {
    value = rounded(c.weighs_input ? weights[chosen.front()] * value : value);
  }
  for (const std::size_t e : chosen) {
    const Doubles out = feed_forward(gate_up, down, static_cast<std::int64_t>(e), z, c.has_biases);
    const double weight = c.weighs_input ? 1.0 : weights[e];
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * out[i];
  }
  if (c.latent > 0) {
    for (double& value : sum) value = rounded(value);
    sum = times(latent_out, 0, c.hidden, sum);
  }
  if (c.shared > 0) {
    const Doubles out = feed_forward(shared_gate_up, shared_down, 0, n);
    const double gate = c.has_shared_gate ? sigmoid(times(shared_gate, 0, 1, n)[0]) : 1.0;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gate * out[i];
  }
  for (double& value : sum) value *= static_cast<double>(c.scale);
  return sum;
}

}  // namespace hyb::kernels::testing
