#include "kernels/linear/linear.h"

#include <algorithm>

#include "kernels/cuda/routes.h"
#include "kernels/linear/input_observer.h"
#include "kernels/linear/panel_product.h"
#include "kernels/ops/check.h"

namespace hyb::kernels {
namespace {

/// Pieces of work per thread: enough to keep the threads balanced to the end.
constexpr std::int64_t pieces_per_thread = 16;
/// Fewer rows than this are not worth streaming a panel through the cache again.
constexpr std::int64_t rows_of_piece_min = 48;

void check(const Linear& op) {
  const Check check("linear");
  check.that(op.weight != nullptr && op.weight->rows() > 0, "weight is there", 0);
  const Weight& weight = *op.weight;
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.tensor(op.x, "x", op.x.dtype, {op.x.dim(0), weight.columns()});
  check.tensor(op.y, "y", op.y.dtype == DType::f32 ? DType::f32 : op.x.dtype,
               {op.x.dim(0), weight.rows()});
  if (!op.bias.empty()) check.tensor(op.bias, "bias", DType::f32, {weight.rows()});
  check.that(op.expert >= 0 && op.expert < weight.experts(), "expert is one of the weight's",
             op.expert);
  check.that(weight.format() == WeightFormat::rows || weight.activation_dtype() == op.x.dtype,
             "panels are for the type of x", static_cast<std::int64_t>(weight.dtype()));
}

/// Panel `panel` times rows begin .. begin+count-1 of x, written to y.
void times_panel(const Linear& op, const WeightProduct& product, std::int64_t panel,
                 std::int64_t begin, std::int64_t count) {
  const Tensor x = op.x.rows(begin, count);
  const Tensor y =
      op.y.rows(begin, count).columns(product.first_output(panel), product.outputs(panel));
  const std::int64_t x_bytes = x.row_stride * static_cast<std::int64_t>(size_of(x.dtype));
  const std::int64_t y_bytes = y.row_stride * static_cast<std::int64_t>(size_of(y.dtype));
  const float* const bias =
      op.bias.empty() ? nullptr : op.bias.as<float>() + product.first_output(panel);
  product.multiply(
      op.expert, panel, count, [&](std::int64_t i) { return x.as<std::byte>() + i * x_bytes; },
      [&](std::int64_t i, const float* sums) {
        product.write({.sums = sums,
                       .columns = y.dim(1),
                       .y = y.as<std::byte>() + i * y_bytes,
                       .y_is_bf16 = y.dtype == DType::bf16,
                       .add = op.add,
                       .scale = op.scale,
                       .bias = bias});
      });
}

/// A weight of one part, by its panels.
void multiply(Queue& queue, Linear op) {
  const std::int64_t rows = op.x.dim(0);
  const auto value_bytes = static_cast<std::int64_t>(size_of(op.x.dtype));
  std::vector<std::byte> ordered = ordered_rows(
      queue, *op.weight, op.x.dtype, rows,
      [&](std::int64_t i) { return op.x.rows(i, 1).as<std::byte>(); },
      [&](std::int64_t) { return op.expert; });
  if (!ordered.empty()) op.x = Tensor(ordered.data(), op.x.dtype, {rows, op.x.dim(1)});
  const WeightProduct product(queue, *op.weight, op.x.dtype, op.x.as<std::byte>(), rows,
                              op.x.row_stride * value_bytes);
  const std::int64_t wanted = queue.threads() * pieces_per_thread;
  const std::int64_t pieces =
      std::clamp((wanted + product.panels() - 1) / product.panels(), std::int64_t{1},
                 std::max(std::int64_t{1}, rows / rows_of_piece_min));
  const std::int64_t bytes = product.panels() * product.panel_bytes() * rows;
  parallel_product(
      queue, product.panels() * pieces, bytes, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) {
          const std::int64_t piece = item % pieces;
          const std::int64_t first = rows * piece / pieces;
          times_panel(op, product, item / pieces, first, rows * (piece + 1) / pieces - first);
        }
      });
}

}  // namespace

void linear(Queue& queue, const Linear& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::linear(stream, op); })) return;
  const std::int64_t rows = op.x.dim(0);
  if (rows == 0) return;
  if (queue.observer() != nullptr) {
    queue.observer()->see(queue,
                          {.weight = *op.weight,
                           .expert = op.expert,
                           .dtype = op.x.dtype,
                           .rows = rows,
                           .row = [&](std::int64_t i) { return op.x.rows(i, 1).as<std::byte>(); }});
  }
  if (each_part(op, [&](const Linear& part) { linear(queue, part); })) return;
  multiply(queue, op);
}

}  // namespace hyb::kernels
