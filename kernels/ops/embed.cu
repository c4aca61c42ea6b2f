#include "kernels/cuda/gather.h"
#include "kernels/cuda/routes.h"
#include "kernels/linear/coded_device.h"
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

template <typename T>
struct CodedRead {
  CodedMatrix weight;
  const std::int32_t* tokens;
  T* y;
  std::int64_t y_stride;
  int rows, width;
  float scale;
};

constexpr int coded_threads = 128;

/// grid (tokens, pieces of the width): a thread owns one element.
template <WeightCode Code, typename T>
__global__ void __launch_bounds__(coded_threads) coded_embed_kernel(const CodedRead<T> p) {
  const int k = static_cast<int>(blockIdx.y * coded_threads + threadIdx.x);
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (k >= p.width) return;
  const int token = p.tokens[blockIdx.x];
  float value = std::numeric_limits<float>::quiet_NaN();
  if (token >= 0 && token < p.rows) value = coded_element<Code>(p.weight, token, k) * p.scale;
  p.y[blockIdx.x * p.y_stride + k] = rounded<T>(value);
}

template <WeightCode Code>
void run_code(Stream& stream, const Embed& op) {
  if (op.tokens.dim(0) == 0) return;
  visit_float(op.y.dtype, [&]<typename T>(Tag<T>) {
    const CodedRead<T> params = {.weight = coded_matrix(*op.weight, 0),
                                 .tokens = op.tokens.as<std::int32_t>(),
                                 .y = op.y.as<T>(),
                                 .y_stride = op.y.row_stride,
                                 .rows = static_cast<int>(op.weight->rows()),
                                 .width = static_cast<int>(op.weight->columns()),
                                 .scale = op.scale};
    launch(stream,
           {.blocks =
                dim3(static_cast<unsigned>(op.tokens.dim(0)), pieces(params.width, coded_threads)),
            .threads = coded_threads,
            .starts_early = true},
           coded_embed_kernel<Code, T>, params);
  });
}

}  // namespace

void embed(Stream& stream, const Embed& op) {
  require(op.weight->format() == WeightFormat::rows, "embed: weights on the device are rows");
  if (op.weight->code() != WeightCode::plain) {
    return visit_code(op.weight->code(), [&]<WeightCode Code>() { run_code<Code>(stream, op); });
  }
  if (op.weight->dtype() == DType::f16) return run<Half>(stream, op);
  if (op.weight->dtype() == DType::bf16) return run<bf16>(stream, op);
  run<float>(stream, op);
}

}  // namespace hyb::kernels::cuda
