#include "kernels/cuda/gather.h"
#include "kernels/cuda/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {

void gather_rows(Stream& stream, const GatherRows& op) {
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    gather<T, T>(stream, op.rows.dim(0),
                 {.x = op.x.as<T>(),
                  .rows = op.rows.as<std::int32_t>(),
                  .y = op.y.as<T>(),
                  .x_rows = op.x.dim(0),
                  .x_stride = op.x.row_stride,
                  .y_stride = op.y.row_stride,
                  .width = static_cast<int>(op.x.dim(1)),
                  .scale = 1.0F});
  });
}

}  // namespace hyb::kernels::cuda
