#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/vectors.h"
#include "kernels/floats.h"
#include "kernels/linear/codes.h"
#include "kernels/linear/pack.h"
#include "kernels/linear/project.h"

/// What the CUDA routes of linear and project share. Each route is one kernel for one range of row
/// counts; linear.cu and project.cu choose. Included by .cu files only.
namespace hyb::kernels::cuda {

/// W [outputs, inner] in rows, x and y as in Project without its norm.
template <typename X, typename Y>
struct Dense {
  const X* x;
  const void* weight;
  DType weight_type;
  Y* y;
  std::int64_t x_stride, y_stride;
  int tokens, outputs, inner;
  int columns;  ///< of y: half of the outputs where is_gated
  float scale;
  bool add;
  bool is_activated, is_gated;  ///< gated only where activated; neither scaled nor added
  ActivationFunction function;
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

/// One element of y, from the sum of its row of W and, where is_gated, that of the row
/// `p.columns` below. An activation sees sums rounded as if they had been written.
template <typename X, typename Y>
__device__ __forceinline__ void write(const Dense<X, Y>& p, int token, int column, float sum,
                                      float up) {
  if (token >= p.tokens || column >= p.columns) return;
  Y* const y = p.y + token * p.y_stride + column;
  float value = 0.0F;
  if (p.is_activated) {
    value =
        activated({p.function, p.is_gated}, to_float(rounded<X>(sum)), to_float(rounded<X>(up)));
  } else {
    value = (p.add ? to_float(*y) : 0.0F) + p.scale * sum;
  }
  *y = rounded<Y>(value);
}

/// Writes norm(x) to y, as the op of this name. There is a norm.
void apply(Stream& stream, const InputNorm& norm, const Tensor& x, const Tensor& y);

/// Whether x and W can be read in vectors: bf16 of which each row is 16-byte aligned.
bool takes_matrices(const Project& op, const Tensor& x, const void* weight);

/// y = activation(W * x), or (add ? y : 0) + scale * W * x, by the route for the row count, W being
/// the expert's. `x` replaces the op's own: normed rows, or by `norm` where its route takes one.
void multiply(Stream& stream, const Project& op, const Tensor& x, std::int64_t expert,
              const DenseNorm& norm);

/// The routes, besides the plain kernels of linear.cu, which take any type, alignment and row
/// count.
///
/// A weight with codes and x of bf16 whose rows are 16-byte aligned, K a multiple of 8. Any row
/// count in one order of sums:
struct CodedMatrix;
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
/// Whether the rows of x fit in shared memory with the weights in flight, which a norm needs.
bool gemv_takes_norm(int tokens, int inner, int groups);

/// Element i of a weight in rows of any type.
__device__ __forceinline__ float weight_at(const void* weight, DType type, std::int64_t i) {
  if (type == DType::f32) return static_cast<const float*>(weight)[i];
  if (type == DType::bf16) return to_float(static_cast<const bf16*>(weight)[i]);
  return to_float(static_cast<const f16*>(weight)[i]);
}

}  // namespace hyb::kernels::cuda

/// Codes on a card. Included by .cu files only.
namespace hyb::kernels::cuda {

/// An expert's matrix.
struct CodedMatrix {
  const std::byte* codes;
  const std::byte* scales;
  int chunks;  ///< of a row
};

inline CodedMatrix coded_matrix(const Weight& weight, std::int64_t expert) {
  const CodedRowsShape shape = {weight.code(), weight.rows(), weight.columns()};
  const std::byte* const codes = weight.expert(expert);
  return {codes, codes + shape.codes_bytes(), static_cast<int>(shape.chunks())};
}

/// Four of q4_levels as bytes: an array is not there on a card.
constexpr std::uint32_t q4_levels_word(std::size_t first) {
  std::uint32_t word = 0;
  for (std::size_t i = 4; i-- > 0;) {
    word = word << 8 | static_cast<std::uint8_t>(q4_levels[first + i]);
  }
  return word;
}

__device__ __forceinline__ std::int8_t q4_level(unsigned bits) {
  constexpr std::uint32_t a = q4_levels_word(0), b = q4_levels_word(4), c = q4_levels_word(8),
                          d = q4_levels_word(12);
  const std::uint32_t word = bits < 8 ? (bits < 4 ? a : b) : (bits < 12 ? c : d);
  return static_cast<std::int8_t>(word >> (bits % 4 * 8));
}

/// level_of as bf16.
template <WeightCode Code>
__device__ __forceinline__ std::uint32_t level_bits(unsigned bits) {
  if constexpr (Code == WeightCode::q4) {
    return pack_bf16(static_cast<float>(q4_level(bits)), 0.0F);
  } else {
    return pack_bf16(level_of(Code, static_cast<std::uint8_t>(bits)), 0.0F);
  }
}

/// Element k of a row.
template <WeightCode Code>
__device__ __forceinline__ float coded_element(const CodedMatrix& weight, int row, int k) {
  using Shape = CodedRowsShape;
  constexpr int chunk_columns = static_cast<int>(Shape::chunk_columns);
  constexpr int chunk_bytes = static_cast<int>(Shape::chunk_bytes(Code));
  const std::int64_t chunk = static_cast<std::int64_t>(row) * weight.chunks + k / chunk_columns;
  const auto place = static_cast<int>(place_in_chunk(k % chunk_columns));
  const auto* const codes = weight.codes + chunk * chunk_bytes;
  float scale;
  if constexpr (Code == WeightCode::fp8) {
    scale = reinterpret_cast<const float*>(weight.scales)[chunk];
  } else {
    const int group = k % chunk_columns / static_cast<int>(Shape::group_columns);
    scale = to_float(reinterpret_cast<const bf16*>(weight.scales)[chunk * Shape::groups + group]);
  }
  std::uint32_t bits;
  if constexpr (Code == WeightCode::q4) {
    const unsigned both = static_cast<unsigned>(codes[place / 2]);
    bits = level_bits<Code>(both >> (place % 2 * 4) & 15U);
  } else {
    bits = level_bits<Code>(static_cast<unsigned>(codes[place]));
  }
  return std::bit_cast<float>(bits << 16) * scale;
}

/// Calls body.operator()<Code>() with the code of a weight that has codes.
template <typename Body>
void visit_code(WeightCode code, Body&& body) {
  if (code == WeightCode::fp8) return body.template operator()<WeightCode::fp8>();
  if (code == WeightCode::q8) return body.template operator()<WeightCode::q8>();
  require(code == WeightCode::q4, "a weight with codes");
  body.template operator()<WeightCode::q4>();
}

/// A weight in rows of any type or code, for plain kernels.
struct AnyWeight {
  const std::byte* data;
  DType type;
  WeightCode code;
  std::int64_t rows, columns, expert_bytes;
  int chunks;

  __device__ __forceinline__ float at(std::int64_t expert, std::int64_t row, int k) const {
    if (code == WeightCode::plain) {
      return weight_at(data, type, (expert * rows + row) * columns + k);
    }
    const std::byte* const codes = data + expert * expert_bytes;
    const std::int64_t codes_bytes = rows * chunks * CodedRowsShape::chunk_bytes(code);
    const CodedMatrix matrix = {codes, codes + codes_bytes, chunks};
    const auto n = static_cast<int>(row);
    if (code == WeightCode::q4) return coded_element<WeightCode::q4>(matrix, n, k);
    if (code == WeightCode::q8) return coded_element<WeightCode::q8>(matrix, n, k);
    return coded_element<WeightCode::fp8>(matrix, n, k);
  }
};

inline AnyWeight any_weight(const Weight& weight) {
  const CodedRowsShape shape = {weight.code(), weight.rows(), weight.columns()};
  return {.data = weight.expert(0),
          .type = weight.dtype(),
          .code = weight.code(),
          .rows = weight.rows(),
          .columns = weight.columns(),
          .expert_bytes = shape.expert_bytes(),
          .chunks = static_cast<int>(shape.chunks())};
}

/// The levels of each byte of codes: of 4 bits the bf16 of both, low half first; of 8 bits the
/// bf16 in both halves. Once for each lane, so that any 32 bytes are looked up in one cycle.
struct Levels {
  static constexpr int bytes = 256;
  SharedArray<std::uint32_t, bytes * warp_size> words;

  /// By the whole block, before a barrier.
  template <WeightCode Code>
  __device__ __forceinline__ void fill() {
    for (int byte = static_cast<int>(threadIdx.x); byte < bytes;
         byte += static_cast<int>(blockDim.x)) {
      const auto bits = static_cast<unsigned>(byte);
      std::uint32_t pair;
      if constexpr (Code == WeightCode::q4) {
        pair = level_bits<Code>(bits & 15U) | level_bits<Code>(bits >> 4) << 16;
      } else {
        pair = level_bits<Code>(bits) * 0x10001U;
      }
      for (int i = 0; i < warp_size; ++i) words[byte * warp_size + (byte + i) % warp_size] = pair;
    }
  }
  __device__ __forceinline__ std::uint32_t of(unsigned byte, int lane) const {
    return words[static_cast<int>(byte) * warp_size + lane];
  }
};

}  // namespace hyb::kernels::cuda
