#include "kernels/ops/add_norm.h"

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const AddNorm& op) {
  const Check check("add_norm");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.tensor(op.added, "added", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
  check.tensor(op.y, "y", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
  check.that(op.y.data != op.x.data && op.y.data != op.added.data, "y is neither x nor added", 0);
}

template <typename T>
void add_row(const AddNorm& op, std::int64_t row) {
  const T* const added = op.added.row<T>(row);
  T* const x = op.x.row<T>(row);
  for (std::int64_t i = 0; i < op.x.dim(1); ++i) {
    x[i] = from_float<T>(to_float(x[i]) + op.scale * to_float(added[i]));
  }
}

}  // namespace

void add_norm(Queue& queue, const AddNorm& op) {
  check(op);
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::add_norm(queue.stream(), op);
  }
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t row = begin; row < end; ++row) add_row<T>(op, row);
    });
  });
  rms_norm(queue,
           {.x = op.x, .weight = op.weight, .y = op.y, .eps = op.eps, .one_plus = op.one_plus});
}

}  // namespace hyb::kernels
