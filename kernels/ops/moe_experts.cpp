#include "kernels/ops/moe_experts.h"

#include <algorithm>
#include <cstring>

#include "kernels/linear/input_observer.h"
#include "kernels/linear/panel_product.h"
#include "kernels/ops/check.h"

namespace hyb::kernels {
namespace {

/// A place is one token's visit to one expert; the places of an expert are contiguous.
struct ExpertsWorkspace {
  std::int32_t* first_place;  ///< [E+1] by expert
  std::int32_t* visited;      ///< [E] experts that have places, ascending
  std::int32_t* token;        ///< [places]
  float* share;               ///< [places] the token's weight for the expert
  std::byte* inner;           ///< [places, 2I or I] activations: gate_up * x, then the activated
  float* sums;                ///< [H/64 panels, T, 64]
  std::size_t bytes;

  ExpertsWorkspace(const MoeExpertsShape& shape, std::byte* base) {
    const std::int64_t places = shape.tokens * shape.chosen;
    const std::int64_t inner_values = places * shape.activation.inputs() * shape.intermediate;
    const std::int64_t panels = (shape.hidden + Weight::panel_rows - 1) / Weight::panel_rows;
    std::size_t at = 0;
    const auto take = [&](std::int64_t count, std::size_t value_bytes) {
      std::byte* const begin = base == nullptr ? nullptr : base + at;
      at += (static_cast<std::size_t>(count) * value_bytes + 63) / 64 * 64;
      return begin;
    };
    first_place = reinterpret_cast<std::int32_t*>(take(shape.experts + 1, 4));
    visited = reinterpret_cast<std::int32_t*>(take(shape.experts, 4));
    token = reinterpret_cast<std::int32_t*>(take(places, 4));
    share = reinterpret_cast<float*>(take(places, 4));
    inner = take(inner_values, size_of(shape.dtype));
    sums = reinterpret_cast<float*>(take(panels * shape.tokens * Weight::panel_rows, 4));
    bytes = at;
  }
};

MoeExpertsShape shape_of(const MoeExperts& op) {
  return {.tokens = op.x.dim(0),
          .chosen = op.chosen.dim(1),
          .experts = op.down->experts(),
          .hidden = op.down->rows(),
          .intermediate = op.down->columns(),
          .dtype = op.x.dtype,
          .activation = op.activation};
}

void check_weight(const Check& check, const Weight& weight, const MoeExpertsShape& shape,
                  std::int64_t rows, std::int64_t columns) {
  check.that(weight.experts() == shape.experts, "both weights have E experts", weight.experts());
  check.that(weight.rows() == rows, "weights are [E,2I,H] and [E,H,I], rows", weight.rows());
  check.that(weight.columns() == columns, "weights are [E,2I,H] and [E,H,I], columns",
             weight.columns());
  check.that(weight.format() == WeightFormat::rows || weight.activation_dtype() == shape.dtype,
             "panels are for the type of x", static_cast<std::int64_t>(weight.dtype()));
}

}  // namespace

void check_expert_biases(const char* op, const Tensor& gate_up, const Tensor& down,
                         const Weight& gate_up_weight, const Weight& down_weight) {
  const Check check(op);
  const auto has_rows = [&](const Tensor& bias, const char* name, const Weight& weight) {
    if (!bias.empty()) check.tensor(bias, name, DType::f32, {weight.experts(), weight.rows()});
  };
  has_rows(gate_up, "gate_up_bias", gate_up_weight);
  has_rows(down, "down_bias", down_weight);
}

namespace {

void check(const MoeExperts& op) {
  const Check check("moe_experts");
  check.that(op.gate_up != nullptr && op.down != nullptr, "weights are there", 0);
  check.function(op.activation);
  const MoeExpertsShape shape = shape_of(op);
  check.activations(op.x, "x");
  check.tensor(op.x, "x", shape.dtype, {shape.tokens, shape.hidden});
  check.tensor(op.y, "y", shape.dtype, {shape.tokens, shape.hidden});
  check.tensor(op.chosen, "chosen", DType::i32, {shape.tokens, shape.chosen});
  check.tensor(op.weights, "weights", DType::f32, {shape.tokens, shape.chosen});
  check_weight(check, *op.gate_up, shape, op.activation.inputs() * shape.intermediate,
               shape.hidden);
  check_weight(check, *op.down, shape, shape.hidden, shape.intermediate);
  check_expert_biases("moe_experts", op.gate_up_bias, op.down_bias, *op.gate_up, *op.down);
  const auto bytes = static_cast<std::int64_t>(moe_experts_workspace_bytes(shape));
  const std::int64_t given =
      op.workspace.size() * static_cast<std::int64_t>(size_of(op.workspace.dtype));
  check.that(given >= bytes, "workspace is large enough", given);
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    for (std::int64_t j = 0; j < shape.chosen; ++j) {
      const std::int32_t e = op.chosen.row<std::int32_t>(t)[j];
      check.that(e >= 0 && e < shape.experts, "chosen expert is one of the weights'", e);
    }
  }
}

/// Fills the tables of the workspace; returns how many experts are visited. A token's places are
/// visited in ascending order of expert, whatever the other tokens chose.
std::int64_t group_by_expert(const MoeExperts& op, const MoeExpertsShape& shape,
                             const ExpertsWorkspace& work) {
  std::int32_t* const first = work.first_place;
  std::fill_n(first, shape.experts + 1, 0);
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    const auto* const chosen = op.chosen.row<std::int32_t>(t);
    for (std::int64_t j = 0; j < shape.chosen; ++j) ++first[chosen[j]];
  }
  std::int64_t visited = 0;
  std::int32_t end = 0;
  for (std::int64_t e = 0; e <= shape.experts; ++e) {
    if (first[e] > 0) work.visited[visited++] = static_cast<std::int32_t>(e);
    end += first[e];
    first[e] = end;
  }
  for (std::int64_t t = shape.tokens; t-- > 0;) {  // backwards, so that first[e] ends as the start
    const auto* const chosen = op.chosen.row<std::int32_t>(t);
    for (std::int64_t j = shape.chosen; j-- > 0;) {
      const std::int32_t place = --first[chosen[j]];
      work.token[place] = static_cast<std::int32_t>(t);
      work.share[place] = op.weights.row<float>(t)[j];
    }
  }
  return visited;
}

/// row(i): of place i.
void show_inputs(Queue& queue, const MoeExperts& op, const Weight& weight,
                 const ExpertsWorkspace& work, std::int64_t visited,
                 const std::function<const std::byte*(std::int64_t)>& row) {
  if (queue.observer() == nullptr) return;
  for (std::int64_t v = 0; v < visited; ++v) {
    const std::int32_t e = work.visited[v];
    const std::int32_t first = work.first_place[e];
    queue.observer()->see(queue, {.weight = weight,
                                  .expert = e,
                                  .dtype = op.x.dtype,
                                  .rows = work.first_place[e + 1] - first,
                                  .row = [&](std::int64_t i) { return row(first + i); }});
  }
}

/// The rows of x that places read, in copies where experts have orders of columns.
class PlaceRows {
 public:
  struct Rows {
    const std::byte* x;
    std::int64_t count, row_bytes;
    const std::int32_t* of_place;  ///< null: each its own

    const std::byte* operator[](std::int64_t place) const {
      return x + (of_place == nullptr ? place : of_place[place]) * row_bytes;
    }
  };

  /// Shows the rows to the queue's observer.
  PlaceRows(Queue& queue, const MoeExperts& op, const Weight& weight, const ExpertsWorkspace& work,
            std::int64_t visited, const Rows& rows)
      : rows_(rows) {
    show_inputs(queue, op, weight, work, visited, [&](std::int64_t i) { return rows[i]; });
    const std::int32_t* const first = work.first_place;
    copies_ = ordered_rows(
        queue, weight, op.x.dtype, op.chosen.size(), [&](std::int64_t i) { return rows[i]; },
        [&](std::int64_t i) {
          return std::upper_bound(first, first + weight.experts(), i) - first - 1;
        });
    if (copies_.empty()) return;
    const auto value_bytes = static_cast<std::int64_t>(size_of(op.x.dtype));
    rows_ = {copies_.data(), op.chosen.size(), weight.columns() * value_bytes, nullptr};
  }

  const std::byte* operator[](std::int64_t place) const { return rows_[place]; }
  WeightProduct product(Queue& queue, const MoeExperts& op, const Weight& weight) const {
    return {queue, weight, op.x.dtype, rows_.x, rows_.count, rows_.row_bytes};
  }

 private:
  Rows rows_;
  std::vector<std::byte> copies_;
};

/// The part of expert e's bias that is of a panel; null: none.
const float* bias_of(const Tensor& bias, const WeightProduct& product, std::int64_t e,
                     std::int64_t panel) {
  return bias.empty() ? nullptr : bias.row<float>(e) + product.first_output(panel);
}

/// inner[place] = gate_up[e] * x[token of place] + its bias, for all places.
void multiply_gate_up(Queue& queue, const MoeExperts& op, const ExpertsWorkspace& work,
                      std::int64_t visited) {
  const auto value_bytes = static_cast<std::int64_t>(size_of(op.x.dtype));
  const std::int64_t x_bytes = op.x.row_stride * value_bytes;
  const PlaceRows rows(queue, op, *op.gate_up, work, visited,
                       {op.x.as<std::byte>(), op.x.dim(0), x_bytes, work.token});
  const WeightProduct product = rows.product(queue, op, *op.gate_up);
  const std::int64_t inner_bytes = op.gate_up->rows() * value_bytes;
  const std::int64_t items = visited * product.panels();
  const std::int64_t bytes = product.panel_bytes() * product.panels() * op.chosen.size();
  parallel_product(queue, items, bytes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int32_t e = work.visited[item / product.panels()];
      const std::int64_t panel = item % product.panels();
      const std::int32_t first = work.first_place[e];
      std::byte* const out =
          work.inner + first * inner_bytes + product.first_output(panel) * value_bytes;
      product.multiply(
          e, panel, work.first_place[e + 1] - first,
          [&](std::int64_t i) { return rows[first + i]; },
          [&](std::int64_t i, const float* sums) {
            product.write({.sums = sums,
                           .columns = product.outputs(panel),
                           .y = out + i * inner_bytes,
                           .y_is_bf16 = op.x.dtype == DType::bf16,
                           .add = false,
                           .scale = 1.0F,
                           .bias = bias_of(op.gate_up_bias, product, e, panel)});
          });
    }
  });
}

/// One panel of outputs of all tokens: the experts one after the other, each adding its part.
void add_down_panel(const MoeExperts& op, const WeightProduct& product,
                    const ExpertsWorkspace& work, const PlaceRows& rows, std::int64_t visited,
                    std::int64_t panel) {
  const auto value_bytes = static_cast<std::int64_t>(size_of(op.x.dtype));
  const std::int64_t tokens = op.x.dim(0);
  float* const totals = work.sums + panel * tokens * Weight::panel_rows;
  std::memset(totals, 0, static_cast<std::size_t>(tokens * Weight::panel_rows) * sizeof(float));
  for (std::int64_t v = 0; v < visited; ++v) {
    const std::int32_t e = work.visited[v];
    const std::int32_t first = work.first_place[e];
    product.multiply(
        e, panel, work.first_place[e + 1] - first, [&](std::int64_t i) { return rows[first + i]; },
        [&](std::int64_t i, const float* sums) {
          product.write({.sums = sums,
                         .columns = product.outputs(panel),
                         .y = totals + work.token[first + i] * Weight::panel_rows,
                         .y_is_bf16 = false,
                         .add = true,
                         .scale = work.share[first + i],
                         .bias = bias_of(op.down_bias, product, e, panel)});
        });
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    product.write({.sums = totals + t * Weight::panel_rows,
                   .columns = product.outputs(panel),
                   .y = op.y.as<std::byte>() +
                        (t * op.y.row_stride + product.first_output(panel)) * value_bytes,
                   .y_is_bf16 = op.y.dtype == DType::bf16,
                   .add = op.add,
                   .scale = op.scale});
  }
}

}  // namespace

std::size_t moe_experts_workspace_bytes(const MoeExpertsShape& shape) {
  return ExpertsWorkspace(shape, nullptr).bytes;
}

void moe_experts(Queue& queue, const MoeExperts& op) {
  check(op);
  const MoeExpertsShape shape = shape_of(op);
  if (shape.tokens == 0) return;
  const ExpertsWorkspace work(shape, op.workspace.as<std::byte>());
  const std::int64_t visited = group_by_expert(op, shape, work);
  multiply_gate_up(queue, op, work, visited);

  const std::int64_t places = shape.tokens * shape.chosen;
  const Tensor inner(work.inner, shape.dtype,
                     {places, op.activation.inputs() * shape.intermediate});
  gated_activation(
      queue, {.x = inner, .y = inner.columns(0, shape.intermediate), .activation = op.activation});

  const std::int64_t inner_bytes =
      op.gate_up->rows() * static_cast<std::int64_t>(size_of(op.x.dtype));
  const PlaceRows rows(queue, op, *op.down, work, visited,
                       {work.inner, places, inner_bytes, nullptr});
  const WeightProduct product = rows.product(queue, op, *op.down);
  const std::int64_t bytes = product.panel_bytes() * product.panels() * places;
  parallel_product(queue, product.panels(), bytes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      add_down_panel(op, product, work, rows, visited, panel);
    }
  });
}

}  // namespace hyb::kernels
