#include "kernels/linear/linear.h"

#include <algorithm>
#include <span>
#include <vector>

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

/// Products of as many rows with matrices of one weight, which has one part, by its panels.
void multiply(Queue& queue, std::span<const Linear> ops) {
  const Linear& first = ops.front();
  const std::int64_t rows = first.x.dim(0);
  const auto value_bytes = static_cast<std::int64_t>(size_of(first.x.dtype));
  std::vector<WeightProduct> products;
  products.reserve(ops.size());
  for (const Linear& op : ops) {
    products.emplace_back(queue, *op.weight, op.x.dtype, op.x.as<std::byte>(), rows,
                          op.x.row_stride * value_bytes);
  }
  const std::int64_t panels = products.front().panels(), all_panels = std::ssize(ops) * panels;
  const std::int64_t wanted = queue.threads() * pieces_per_thread;
  const std::int64_t pieces = std::clamp((wanted + all_panels - 1) / all_panels, std::int64_t{1},
                                         std::max(std::int64_t{1}, rows / rows_of_piece_min));
  const std::int64_t bytes = all_panels * products.front().panel_bytes() * rows;
  parallel_product(queue, all_panels * pieces, bytes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t panel = item / pieces, piece = item % pieces;
      const auto i = static_cast<std::size_t>(panel / panels);
      const std::int64_t from = rows * piece / pieces;
      times_panel(ops[i], products[i], panel % panels, from, rows * (piece + 1) / pieces - from);
    }
  });
}

/// The same of one, whose weight may have an order of columns.
void multiply(Queue& queue, Linear op) {
  const std::int64_t rows = op.x.dim(0);
  std::vector<std::byte> ordered = ordered_rows(
      queue, *op.weight, op.x.dtype, rows,
      [&](std::int64_t i) { return op.x.rows(i, 1).as<std::byte>(); },
      [&](std::int64_t) { return op.expert; });
  if (!ordered.empty()) op.x = Tensor(ordered.data(), op.x.dtype, {rows, op.x.dim(1)});
  multiply(queue, std::span<const Linear>(&op, 1));
}

void show(Queue& queue, const Linear& op) {
  if (queue.observer() == nullptr) return;
  queue.observer()->see(queue,
                        {.weight = *op.weight,
                         .expert = op.expert,
                         .dtype = op.x.dtype,
                         .rows = op.x.dim(0),
                         .row = [&](std::int64_t i) { return op.x.rows(i, 1).as<std::byte>(); }});
}

}  // namespace

void linear(Queue& queue, const Linear& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::linear(stream, op); })) return;
  if (op.x.dim(0) == 0) return;
  show(queue, op);
  if (each_part(op, [&](const Linear& part) { linear(queue, part); })) return;
  multiply(queue, op);
}

void linear_heads(Queue& queue, const LinearHeads& op) {
  const Check rule("linear_heads");
  rule.that(op.weight != nullptr && op.weight->rows() > 0, "weight is there", 0);
  const std::int64_t heads = op.weight->experts();
  rule.that(op.weight->parts().empty(), "the weight has one part", 0);
  rule.that(op.x.rank == 2 && op.x.dim(1) % heads == 0, "x has as many columns of each head",
            op.x.dim(1));
  rule.that(op.first + op.weight->columns() <= op.x_step(), "a head's columns are its own",
            op.first);
  rule.tensor(op.y, "y", op.y.dtype, {op.x.dim(0), heads * op.weight->rows()});
  check(op.head(0));
  if (op.x.dim(0) == 0) return;
  if (on_card(queue, [&](auto& stream) { cuda::linear_heads(stream, op); })) return;
  if (!op.weight->order(0).empty()) {  // each gathers its own columns
    for (std::int64_t h = 0; h < heads; ++h) linear(queue, op.head(h));
    return;
  }
  std::vector<Linear> products;
  for (std::int64_t h = 0; h < heads; ++h) show(queue, products.emplace_back(op.head(h)));
  multiply(queue, products);
}

}  // namespace hyb::kernels
