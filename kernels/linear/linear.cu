#include <algorithm>
#include <span>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/routes.h"
#include "kernels/linear/input_order.h"
#include "kernels/linear/library_products.h"
#include "kernels/linear/linear.cuh"
#include "kernels/ops/check.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 4;
constexpr std::int64_t grid_rows_max = 65535;

/// A matrix in rows of any type, and one of codes, element by element.
struct PlainMatrix {
  static constexpr int unroll = 4;
  const void* weight;
  DType type;
  int inner;

  __device__ __forceinline__ float at(int row, int k) const {
    return weight_at(weight, type, static_cast<std::int64_t>(row) * inner + k);
  }
};
template <WeightCode Code>
struct PlainCodes {
  static constexpr int unroll = 1;
  CodedMatrix weight;

  __device__ __forceinline__ float at(int row, int k) const {
    return coded_element<Code>(weight, row, k);
  }
};

template <typename X, typename Y, typename Matrix>
struct PlainParams {
  Dense<X, Y> dense;
  Matrix matrix;
};

template <typename X, typename Y, typename Matrix>
__device__ __forceinline__ float product(const PlainParams<X, Y, Matrix>& p, int token,
                                         int output) {
  const X* const x = p.dense.x + token * p.dense.x_stride;
  float sum = 0.0F;
#pragma unroll Matrix::unroll
  for (int k = static_cast<int>(threadIdx.x) % warp_size; k < p.dense.inner; k += warp_size) {
    sum += to_float(x[k]) * p.matrix.at(output, k);
  }
  return warp_sum(sum);
}

/// A warp owns one column of y in one token; a lane every 32nd k. Within (K+4) * 2^-23 * |scale| *
/// sum_k |x*W| of the exact sum, with codes K+5, not counting the roundings.
template <typename X, typename Y, typename Matrix>
__global__ void __launch_bounds__(block_warps* warp_size)
    plain_kernel(const PlainParams<X, Y, Matrix> p) {
  const int column =
      static_cast<int>(blockIdx.x) * block_warps + static_cast<int>(threadIdx.x) / warp_size;
  start_next_and_wait();
  if (column >= p.dense.columns) return;
  for (int token = static_cast<int>(blockIdx.y); token < p.dense.tokens;
       token += static_cast<int>(gridDim.y)) {
    const float sum = product(p, token, column);
    const float up = p.dense.is_gated ? product(p, token, p.dense.columns + column) : 0.0F;
    if (threadIdx.x % warp_size == 0) write(p.dense, token, column, sum, up);
  }
}

template <typename X, typename Y, typename Matrix>
void run_plain_kernel(Stream& stream, const PlainParams<X, Y, Matrix>& params) {
  const auto rows =
      static_cast<unsigned>(std::min<std::int64_t>(params.dense.tokens, grid_rows_max));
  launch(stream,
         {.blocks = dim3(pieces(params.dense.columns, block_warps), rows),
          .threads = block_warps * warp_size},
         plain_kernel<X, Y, Matrix>, params);
}

template <typename X, typename Y>
void run_plain(Stream& stream, const Dense<X, Y>& dense) {
  run_plain_kernel<X, Y, PlainMatrix>(
      stream, {dense, {.weight = dense.weight, .type = dense.weight_type, .inner = dense.inner}});
}

template <typename Y>
void run_codes_plain(Stream& stream, const Dense<bf16, Y>& dense, WeightCode code) {
  visit_code(code, [&]<WeightCode Code>() {
    run_plain_kernel<bf16, Y, PlainCodes<Code>>(stream, {dense, {dense.coded}});
  });
}

template <typename X, typename Y>
Dense<X, Y> dense_of(const Project& op, const Tensor& x, std::int64_t expert, const Heads& heads) {
  const void* const weight = op.weight->expert(expert);
  const Activation activation = op.activation.value_or(Activation{});
  Check("project").function(activation);
  const bool has_codes = op.weight->code() != WeightCode::plain;
  return {.x = x.as<X>(),
          .weight = weight,
          .weight_type = op.weight->dtype(),
          .coded = has_codes ? coded_matrix(*op.weight, expert) : CodedMatrix{},
          .y = op.y.as<Y>(),
          .x_stride = x.row_stride,
          .y_stride = op.y.row_stride,
          .tokens = static_cast<int>(x.dim(0)),
          .outputs = static_cast<int>(op.weight->rows()),
          .inner = static_cast<int>(op.weight->columns()),
          .columns = static_cast<int>(op.y.dim(1)),
          .scale = op.scale,
          .add = op.add,
          .bias = op.bias.as<float>(),
          .is_activated = op.activation.has_value(),
          .is_gated = op.activation.has_value() && activation.gated,
          .activation = activation,
          .heads = heads};
}

/// Runs it by the library, where it takes the product, which has no bias: then the activation is a
/// kernel of its own, after it.
template <typename Y>
bool run_library(Stream& stream, const Project& op, const Dense<bf16, Y>& p) {
  if (stream.products() == nullptr || p.bias != nullptr) return false;
  const Tensor& y = op.activation ? op.product : op.y;
  const LibraryProduct product = {.x = p.x,
                                  .weight = p.weight,
                                  .y = y.data,
                                  .y_is_f32 = y.dtype == DType::f32,
                                  .tokens = p.tokens,
                                  .outputs = p.outputs,
                                  .inner = p.inner,
                                  .x_stride = p.x_stride,
                                  .y_stride = y.row_stride,
                                  .scale = p.scale,
                                  .add = p.add};
  if (!stream.products()->multiply(stream.handle(), product)) return false;
  if (op.activation) {
    gated_activation(stream, {.x = y, .y = op.y, .activation = *op.activation});
  }
  return true;
}

/// The one choice among the routes. Many rows meet codes in the matrix kernel, which decodes what
/// it has staged: of N*K weights it moves 1 byte each (fp8, q8; 12 bits: 1.5; 4 bits: half). A copy
/// in bf16 for the library would write 2 and read 2 more, and need room for them.
template <typename Y>
void run_matrices(Stream& stream, const Project& op, const Dense<bf16, Y>& dense,
                  const DenseNorm& norm) {
  const WeightCode code = product_code(*op.weight);
  if (stream.batch_invariant()) return run_matrix(stream, dense, code);
  if (gemv_takes(code) && dense.tokens <= gemv_tokens_max) {
    return run_gemv(stream, dense, norm, code);
  }
  if (dense.tokens <= skinny_tokens_max) return run_skinny(stream, dense, norm, code);
  if (code == WeightCode::plain && run_library(stream, op, dense)) return;
  run_matrix(stream, dense, code);
}

}  // namespace

bool takes_matrices(const Project& op, const Tensor& x, const void* weight) {
  return x.dtype == DType::bf16 && op.weight->dtype() == DType::bf16 &&
         is_vector_aligned(x.as<bf16>(), x.row_stride) &&
         is_vector_aligned(static_cast<const bf16*>(weight), op.weight->columns());
}

void multiply(Stream& stream, const Project& op, const Tensor& rows, std::int64_t expert,
              const DenseNorm& norm, const Heads& heads) {
  const WeightCode code = op.weight->code();
  const std::span<const std::int32_t> order = op.weight->order(expert);
  require(order.empty() || (norm.weight == nullptr && heads.count == 1),
          "linear: with an order of columns there is neither a norm nor are there heads");
  const Tensor x = in_order(stream, rows, order);
  visit_float(x.dtype, [&]<typename X>(Tag<X>) {
    const auto run = [&]<typename Y>(Tag<Y>) {
      const Dense<X, Y> dense = dense_of<X, Y>(op, x, expert, heads);
      if constexpr (std::is_same_v<X, bf16>) {
        if (takes_matrices(op, x, dense.weight)) return run_matrices(stream, op, dense, norm);
        if (code != WeightCode::plain) return run_codes_plain(stream, dense, code);
      }
      require(code == WeightCode::plain, "linear: on a card codes meet bf16 rows");
      run_plain(stream, dense);
    };
    if (op.y.dtype == DType::f32) return run(Tag<float>{});
    run(Tag<X>{});
  });
}

void linear(Stream& stream, const Linear& op) {
  if (op.x.dim(0) == 0) return;
  require(op.weight->format() == WeightFormat::rows, "linear: CUDA reads weights in rows");
  if (each_part(op, [&](const Linear& part) { linear(stream, part); })) return;
  multiply(stream,
           {.x = op.x,
            .weight = op.weight,
            .y = op.y,
            .scale = op.scale,
            .add = op.add,
            .bias = op.bias},
           op.x, op.expert, {});
}

void linear_heads(Stream& stream, const LinearHeads& op) {
  require(op.weight->format() == WeightFormat::rows, "linear: CUDA reads weights in rows");
  const auto head = [&](std::int64_t h) -> Project {
    const Linear one = op.head(h);
    return {.x = one.x, .weight = one.weight, .y = one.y};
  };
  const std::int64_t count = op.weight->experts();
  const Project first = head(0);
  const bool at_once = count > 1 && !stream.batch_invariant() &&
                       first.x.dim(0) <= gemv_tokens_max && gemv_takes(op.weight->code()) &&
                       takes_matrices(first, first.x, op.weight->expert(0)) &&
                       is_vector_aligned(first.x.as<bf16>(), op.x_step());
  Heads heads;
  if (at_once) {
    heads = {.count = count,
             .x_step = op.x_step(),
             .y_step = op.weight->rows(),
             .weight_bytes = op.weight->expert(1) - op.weight->expert(0)};
  }
  for (std::int64_t h = 0; h < count; h += heads.count) {
    const Project one = head(h);
    multiply(stream, one, one.x, h, {}, heads);
  }
}

}  // namespace hyb::kernels::cuda
