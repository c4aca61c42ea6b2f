#pragma once

#include <cstdint>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/vectors.h"
#include "kernels/linear/project.h"

/// What the CUDA routes of linear and project share. Each route is one kernel for one range of row
/// counts; linear.cu and project.cu choose. Included by .cu files only.
namespace hyb::kernels::cuda {

enum class Epilogue : std::uint8_t { add, silu_gated, relu2 };

/// W [outputs, inner] in rows, x and y as in Project without its norm.
template <typename X, typename Y>
struct Dense {
  const X* x;
  const void* weight;
  DType weight_type;
  Y* y;
  std::int64_t x_stride, y_stride;
  int tokens, outputs, inner;
  int columns;  ///< of y: half of the outputs with silu_gated
  float scale;
  bool add;
  Epilogue epilogue;
};

/// The norm of x's rows, as in InputNorm, where a route takes it into its own load of x.
struct DenseNorm {
  const float* weight = nullptr;  ///< null: none
  const bf16* gate = nullptr;     ///< null: rms_norm
  std::int64_t gate_stride = 0;
  float eps = 0.0F;
  float weight_offset = 0.0F;
  int groups = 1;
  bool norm_first = false;
};

/// Of rows of bf16.
inline DenseNorm norm_of(const InputNorm& norm) {
  return {.weight = norm.weight.as<float>(),
          .gate = norm.gate.as<bf16>(),
          .gate_stride = norm.gate.row_stride,
          .eps = norm.eps,
          .weight_offset = norm.one_plus ? 1.0F : 0.0F,
          .groups = static_cast<int>(norm.groups),
          .norm_first = norm.norm_first};
}

/// One element of y, from the sum of its row of W and, with silu_gated, that of the row
/// `p.columns` below. An activation sees sums rounded as if they had been written.
template <typename X, typename Y>
__device__ __forceinline__ void write(const Dense<X, Y>& p, int token, int column, float sum,
                                      float up) {
  if (token >= p.tokens || column >= p.columns) return;
  Y* const y = p.y + token * p.y_stride + column;
  float value = 0.0F;
  if (p.epilogue == Epilogue::add) {
    value = (p.add ? to_float(*y) : 0.0F) + p.scale * sum;
  } else if (p.epilogue == Epilogue::silu_gated) {
    value = silu_gated(to_float(rounded<X>(sum)), to_float(rounded<X>(up)));
  } else {
    value = relu2(to_float(rounded<X>(sum)));
  }
  *y = rounded<Y>(value);
}

/// Writes norm(x) to y, as the op of this name. There is a norm.
void apply(Stream& stream, const InputNorm& norm, const Tensor& x, const Tensor& y);

/// Whether x and W can be read in vectors: bf16 of which each row is 16-byte aligned.
bool takes_matrices(const Project& op, const Tensor& x, const void* weight);

/// y = activation(W * x), or (add ? y : 0) + scale * W * x, by the route for the row count, W being
/// the expert's. `x` stands for the op's own: normed rows, or by `norm` where its route takes one.
void multiply(Stream& stream, const Project& op, const Tensor& x, std::int64_t expert,
              const DenseNorm& norm);

/// The routes. Any type, any alignment, any row count:
void run_plain(Stream& stream, const Dense<float, float>& dense);
void run_plain(Stream& stream, const Dense<bf16, bf16>& dense);
void run_plain(Stream& stream, const Dense<bf16, float>& dense);

/// A weight with codes and x of bf16, any alignment and row count, in one order of sums:
struct CodedMatrix;
void run_codes_plain(Stream& stream, const Dense<bf16, bf16>& dense, const CodedMatrix& weight,
                     WeightCode code);
void run_codes_plain(Stream& stream, const Dense<bf16, float>& dense, const CodedMatrix& weight,
                     WeightCode code);
/// The same where each row of x is 16-byte aligned and K a multiple of 8:
void run_codes(Stream& stream, const Dense<bf16, bf16>& dense, const CodedMatrix& weight,
               WeightCode code);
void run_codes(Stream& stream, const Dense<bf16, float>& dense, const CodedMatrix& weight,
               WeightCode code);

/// All others: what takes_matrices. Any row count in one order of sums:
void run_matrix(Stream& stream, const Dense<bf16, bf16>& dense);
void run_matrix(Stream& stream, const Dense<bf16, float>& dense);

/// 1 to skinny_tokens_max rows:
inline constexpr int skinny_tokens_max = 64;
void run_skinny(Stream& stream, const Dense<bf16, bf16>& dense);
void run_skinny(Stream& stream, const Dense<bf16, float>& dense);

/// 1 to gemv_tokens_max rows:
inline constexpr int gemv_tokens_max = 8;
void run_gemv(Stream& stream, const Dense<bf16, bf16>& dense, const DenseNorm& norm);
void run_gemv(Stream& stream, const Dense<bf16, float>& dense, const DenseNorm& norm);
/// Whether the rows of x fit beside the weights in flight, which a norm needs.
bool gemv_takes_norm(int tokens, int inner, int groups);

}  // namespace hyb::kernels::cuda
