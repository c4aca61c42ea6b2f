#include "kernels/ops/gather_rows.h"

#include <cstring>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/share.h"

namespace hyb::kernels {
namespace {

void check(const GatherRows& op, Device device) {
  const Check check("gather_rows", device);
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.table(op.rows, "rows", op.rows.dim(0));
  check.tensor(op.y, "y", op.x.dtype, {op.rows.dim(0), op.x.dim(1)});
  if (!check.reads_tables()) return;
  for (std::int64_t i = 0; i < op.rows.dim(0); ++i) {
    const std::int32_t row = op.rows.as<std::int32_t>()[i];
    check.that(row >= 0 && row < op.x.dim(0), "rows are within x", row);
  }
}

}  // namespace

void gather_rows(Queue& queue, const GatherRows& op) {
  check(op, queue.device());
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::gather_rows(queue.stream(), op);
  }
  const std::size_t row_bytes = static_cast<std::size_t>(op.x.dim(1)) * size_of(op.x.dtype);
  if (row_bytes == 0) return;
  share(queue, op.rows.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = op.rows.as<std::int32_t>()[i];
      std::memcpy(op.y.rows(i, 1).data, op.x.rows(row, 1).data, row_bytes);
    }
  });
}

}  // namespace hyb::kernels
