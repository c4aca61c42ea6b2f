#include "kernels/cuda/gather.h"
#include "kernels/cuda/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

template <typename S>
void run(Stream& stream, const Embed& op) {
  visit_float(op.y.dtype, [&]<typename T>(Tag<T>) {
    gather<S, T>(stream, op.tokens.dim(0),
                 {.x = reinterpret_cast<const S*>(op.weight->expert(0)),
                  .rows = op.tokens.as<std::int32_t>(),
                  .y = op.y.as<T>(),
                  .x_rows = op.weight->rows(),
                  .x_stride = op.weight->columns(),
                  .y_stride = op.y.row_stride,
                  .width = static_cast<int>(op.weight->columns()),
                  .scale = op.scale});
  });
}

}  // namespace

void embed(Stream& stream, const Embed& op) {
  require(op.weight->format() == WeightFormat::rows, "embed: weights on the device are rows");
  if (op.weight->dtype() == DType::f16) return run<Half>(stream, op);
  if (op.weight->dtype() == DType::bf16) return run<bf16>(stream, op);
  run<float>(stream, op);
}

}  // namespace hyb::kernels::cuda
