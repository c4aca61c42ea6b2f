#include "kernels/linear/linear.h"

#include <algorithm>

#include "kernels/bf16.h"
#include "kernels/linear/panel_product.h"
#include "kernels/published.h"
#include "kernels/rule.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

/// Below this a hand-over to other threads costs more than it saves.
constexpr std::int64_t bytes_worth_sharing = 64 * 1024;
/// So many pieces of work per thread keep the threads level to the end.
constexpr std::int64_t pieces_per_thread = 16;
/// Fewer rows than this are not worth streaming a panel through the cache again.
constexpr std::int64_t rows_of_piece_min = 48;

void check(const Linear& op) {
  rule(op.weight != nullptr && op.weight->rows() > 0, "linear: a weight", 0);
  const Weight& weight = *op.weight;
  rule(op.x.rank == 2, "linear: x is [T,K], rank", op.x.rank);
  rule(op.y.rank == 2, "linear: y is [T,N], rank", op.y.rank);
  rule(op.x.dim(1) == weight.columns(), "linear: x has the weight's K columns", op.x.dim(1));
  rule(op.y.dim(1) == weight.rows(), "linear: y has the weight's N columns", op.y.dim(1));
  rule(op.y.dim(0) == op.x.dim(0), "linear: y has as many rows as x", op.y.dim(0));
  rule(op.expert >= 0 && op.expert < weight.experts(), "linear: expert of the weight", op.expert);
  rule(op.x.dtype == DType::f32 || op.x.dtype == DType::bf16, "linear: x is F32 or BF16",
       op.x.dtype);
  rule(op.y.dtype == op.x.dtype || op.y.dtype == DType::f32, "linear: y is F32 or of x's type",
       op.y.dtype);
  rule(weight.format() == WeightFormat::rows || weight.dtype() == op.x.dtype,
       "linear: panels of x's type", weight.dtype());
}

/// The plain loop over published rows: the meaning of the op.
template <typename X, typename Y>
void times_rows(const Linear& op, std::int64_t n_begin, std::int64_t n_end) {
  const std::byte* const matrix = op.weight->expert(op.expert);
  const std::int64_t columns = op.weight->columns();
  for (std::int64_t n = n_begin; n < n_end; ++n) {
    for (std::int64_t t = 0; t < op.x.dim(0); ++t) {
      const X* const x = op.x.row<X>(t);
      float sum = 0.0F;
      for (std::int64_t k = 0; k < columns; ++k) {
        sum += to_float(x[k]) * published_value(matrix, op.weight->dtype(), n * columns + k);
      }
      Y& y = op.y.row<Y>(t)[n];
      const float scaled = op.scale * sum;
      y = from_float<Y>(op.add ? to_float(y) + scaled : scaled);
    }
  }
}

void linear_rows(Queue& queue, const Linear& op) {
  queue.share(op.weight->rows(), 16, [&](std::int64_t begin, std::int64_t end, int) {
    visit_float(op.x.dtype, [&]<typename X>(Tag<X>) {
      visit_float(op.y.dtype, [&]<typename Y>(Tag<Y>) { times_rows<X, Y>(op, begin, end); });
    });
  });
}

/// Panel `panel` times rows begin .. begin+count-1 of x, written to y.
void times_panel(const Linear& op, const PanelKernel& kernel, std::int64_t panel,
                 std::int64_t begin, std::int64_t count) {
  const Weight& weight = *op.weight;
  const std::int64_t row_bytes = op.x.row_stride * kernel.value_bytes;
  const auto* const x = op.x.as<const std::byte>() + begin * row_bytes;
  const std::int64_t y_bytes = static_cast<std::int64_t>(size_of(op.y.dtype));
  const std::int64_t column = panel * Weight::panel_rows;
  auto* const y = op.y.as<std::byte>() + (begin * op.y.row_stride + column) * y_bytes;
  PanelRow row = {.sums = nullptr,
                  .columns = std::min(Weight::panel_rows, weight.rows() - column),
                  .y = nullptr,
                  .y_is_bf16 = op.y.dtype == DType::bf16,
                  .add = op.add,
                  .scale = op.scale};
  const PanelShape shape = panel_shape(weight.dtype(), weight.rows(), weight.columns());
  panel_product(
      kernel, weight.expert(op.expert) + panel * shape.panel_bytes(), weight.columns(), count,
      [&](std::int64_t i) { return x + i * row_bytes; },
      [&](std::int64_t i, const float* sums) {
        row.sums = sums;
        row.y = y + i * op.y.row_stride * y_bytes;
        kernel.row(row);
      });
}

void linear_panels(Queue& queue, const Linear& op) {
  const PanelKernel kernel = panel_kernel(queue.isa(), op.x.dtype);
  const PanelShape shape = panel_shape(op.x.dtype, op.weight->rows(), op.weight->columns());
  const std::int64_t rows = op.x.dim(0);
  const std::int64_t wanted = queue.threads() * pieces_per_thread;
  const std::int64_t pieces =
      std::clamp((wanted + shape.panels - 1) / shape.panels, std::int64_t{1},
                 std::max(std::int64_t{1}, rows / rows_of_piece_min));
  const auto work = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t piece = item % pieces;
      const std::int64_t first = rows * piece / pieces;
      times_panel(op, kernel, item / pieces, first, rows * (piece + 1) / pieces - first);
    }
  };
  if (shape.expert_bytes() * rows < bytes_worth_sharing) {
    return queue.alone([&](int, int) { work(0, shape.panels * pieces, 0); });
  }
  queue.share(shape.panels * pieces, 1, work);
}

}  // namespace

void linear(Queue& queue, const Linear& op) {
  check(op);
  if (op.x.dim(0) == 0) return;
  if (op.weight->format() == WeightFormat::rows) return linear_rows(queue, op);
  linear_panels(queue, op);
}

}  // namespace hyb::kernels
