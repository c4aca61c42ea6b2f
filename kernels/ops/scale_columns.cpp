#include "kernels/ops/scale_columns.h"

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const ScaleColumns& op) {
  const Check check("scale_columns");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  const std::int64_t count = std::ssize(op.segments);
  check.that(count >= 1 && count <= column_segments_max, "1 to 8 segments", count);
  std::int64_t columns = 0;
  for (const ColumnSegment& segment : op.segments) {
    check.that(segment.columns >= 1, "a segment has columns", segment.columns);
    columns += segment.columns;
  }
  check.that(columns == op.x.dim(1), "the segments have N columns", columns);
}

template <typename T>
void scale_row(T* x, std::span<const ColumnSegment> segments) {
  for (const ColumnSegment& segment : segments) {
    for (std::int64_t i = 0; i < segment.columns; ++i) {
      x[i] = from_float<T>(to_float(x[i]) * segment.factor);
    }
    x += segment.columns;
  }
}

}  // namespace

void scale_columns(Queue& queue, const ScaleColumns& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::scale_columns(stream, op); })) return;
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) scale_row(op.x.row<T>(t), op.segments);
    });
  });
}

}  // namespace hyb::kernels
