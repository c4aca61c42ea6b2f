#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/base/dtype.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/vectors.h"
#include "kernels/floats.h"
#include "kernels/linear/bits12.cuh"
#include "kernels/linear/bits12_rows.h"
#include "kernels/linear/codes.h"
#include "kernels/linear/gguf_rows.cuh"
#include "kernels/linear/pack.h"
#include "kernels/linear/project.h"

/// This file has what the CUDA routes of linear and project share. Each route is one kernel for one
/// range of row counts; linear.cu and project.cu choose. Included by .cu files only.
namespace hyb::kernels::cuda {

/// The code by which products read a weight.
inline WeightCode product_code(const Weight& weight) {
  if (weight.code() != WeightCode::blocks && weight.code() != WeightCode::groups) {
    return weight.code();
  }
  if (weight.type() == GgufType::mxfp4) return blocks_nvfp4;
  const int bits = gguf_code_bits(weight.type());
  return bits == 4 ? blocks4 : bits == 5 ? blocks5 : bits == 6 ? blocks6 : blocks8;
}

/// An expert's matrix of codes: CodedRowsShape in pack.h, Bits12RowsShape or GgufRowsShape.
struct CodedMatrix {
  const std::byte* codes;
  const std::byte* scales;       ///< bits12: headers; blocks: words
  int chunks;                    ///< of a row; bits12: halves of them
  const std::uint32_t* patches;  ///< bits12
  GgufRowTraits traits;          ///< blocks

  template <WeightCode Code>
  __device__ __forceinline__ const std::byte* codes_of(std::int64_t row) const {
    if constexpr (Code == WeightCode::bits12) {
      return codes + row * chunks * Bits12RowsShape::half_bytes;
    } else {
      return codes + row * chunks * static_cast<int>(CodedRowsShape::chunk_columns) /
                         (packs_nibbles<Code> ? 2 : 1);
    }
  }
  template <WeightCode Code>
  __device__ __forceinline__ const std::byte* scales_of(std::int64_t row) const {
    if constexpr (Code == WeightCode::bits12) {
      return scales + row * static_cast<int>(sizeof(Bits12RowHeader));
    } else if constexpr (is_blocks(Code)) {
      return scales + row * traits.words * 4;
    } else {
      return scales + row * chunks * CodedRowsShape::chunk_scale_bytes(Code);
    }
  }
};

/// Says where the codes of expert 0 are, and how far apart the experts are.
struct CodedExperts {
  CodedMatrix first;
  std::int64_t expert_bytes;

  __host__ __device__ __forceinline__ CodedMatrix operator[](std::int64_t expert) const {
    const std::int64_t bytes = expert * expert_bytes;
    return {first.codes + bytes, first.scales + bytes, first.chunks, first.patches, first.traits};
  }
};

inline CodedExperts coded_experts(const Weight& weight) {
  const std::byte* const codes = weight.expert(0);
  if (weight.code() == WeightCode::bits12) {
    const Bits12RowsShape shape = {weight.rows(), weight.columns()};
    const std::byte* const patches = codes + weight.experts() * shape.expert_bytes();
    return {{codes,
             codes + shape.headers_at(),
             static_cast<int>(shape.halves()),
             reinterpret_cast<const std::uint32_t*>(patches),
             {}},
            shape.expert_bytes()};
  }
  if (is_blocks(product_code(weight))) {
    const GgufRowsShape shape = gguf_rows_shape(weight);
    return {{codes, codes + shape.codes_bytes(), static_cast<int>(shape.chunks()), nullptr,
             shape.traits()},
            shape.expert_bytes()};
  }
  const CodedRowsShape shape = {weight.code(), weight.rows(), weight.columns()};
  return {{codes, codes + shape.codes_bytes(), static_cast<int>(shape.chunks()), nullptr, {}},
          shape.expert_bytes()};
}

inline CodedMatrix coded_matrix(const Weight& weight, std::int64_t expert) {
  return coded_experts(weight)[expert];
}

/// Heads that are multiplied at once, a row of blocks each: how far away the next one's things are.
struct Heads {
  std::int64_t count = 1, x_step = 0, y_step = 0, weight_bytes = 0;
};

/// W [outputs, inner] in rows, x and y as in Project without its norm.
template <typename X, typename Y>
struct Dense {
  const X* x;
  const void* weight;  ///< without codes
  DType weight_type;
  CodedMatrix coded;  ///< else
  Y* y;
  std::int64_t x_stride, y_stride;
  int tokens, outputs, inner;
  int columns;  ///< of y: half of the outputs where is_gated
  float scale;
  bool add;
  const float* bias;            ///< [outputs], null: 0
  bool is_activated, is_gated;  ///< gated only where activated; neither scaled nor added
  Activation activation;
  Heads heads;  ///< of the gemv alone
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
  bf16* kept = nullptr;  ///< where the normed rows go, too; null: nowhere
  std::int64_t kept_stride = 0;
};

/// Returns the norm of rows of bf16.
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
  if (p.bias != nullptr) {
    sum += p.bias[column];
    if (p.is_gated) up += p.bias[p.columns + column];
  }
  float value = 0.0F;
  if (p.is_activated) {
    value = activated(p.activation, to_float(rounded<X>(sum)), to_float(rounded<X>(up)));
  } else {
    value = (p.add ? to_float(*y) : 0.0F) + p.scale * sum;
  }
  *y = rounded<Y>(value);
}

/// Writes norm(x) to y, as the op of this name. There is a norm.
void apply(Stream& stream, const InputNorm& norm, const Tensor& x, const Tensor& y);

/// Says whether x and W can be read in vectors: bf16 of which each row is 16-byte aligned, or codes
/// in rows of whole eights.
bool takes_matrices(const Project& op, const Tensor& x, const void* weight);

/// y = activation(W * x + bias), or (add ? y : 0) + scale * (W * x + bias), by the route for the
/// row count, W being the expert's. `x` replaces the op's own: normed rows, or by `norm` where its
/// route takes one. Of several heads x, y and W are the first one's.
void multiply(Stream& stream, const Project& op, const Tensor& x, std::int64_t expert,
              const DenseNorm& norm, const Heads& heads = {});

/// The routes besides linear.cu's plain kernels, which take any type, alignment and row count.
///
/// These take what takes_matrices() accepts, plain or coded, and sum any row count in one order:
void run_matrix(Stream& stream, const Dense<bf16, bf16>& dense, WeightCode code);
void run_matrix(Stream& stream, const Dense<bf16, float>& dense, WeightCode code);

/// 1 to skinny_tokens_max rows; a norm where takes_norm (input_rows.h) and gemv does not take the
/// code:
inline constexpr int skinny_tokens_max = 64;
void run_skinny(Stream& stream, const Dense<bf16, bf16>& dense, const DenseNorm& norm,
                WeightCode code);
void run_skinny(Stream& stream, const Dense<bf16, float>& dense, const DenseNorm& norm,
                WeightCode code);

/// The gemv takes bf16, plain or in 12 bits, and up to this many rows; a norm where takes_norm. A
/// warp executes 345 instructions for 2 KB of W with 4 rows and 609 with 8, where 4.3 TB/s leave an
/// H200 time for 500; run_skinny needs fewer.
inline constexpr int gemv_tokens_max = 4;
constexpr bool gemv_takes(WeightCode code) {
  return code == WeightCode::plain || code == WeightCode::bits12;
}
void run_gemv(Stream& stream, const Dense<bf16, bf16>& dense, const DenseNorm& norm,
              WeightCode code);
void run_gemv(Stream& stream, const Dense<bf16, float>& dense, const DenseNorm& norm,
              WeightCode code);

/// Element i of a weight in rows of any type.
__device__ __forceinline__ float weight_at(const void* weight, DType type, std::int64_t i) {
  if (type == DType::f32) return static_cast<const float*>(weight)[i];
  if (type == DType::bf16) return to_float(static_cast<const bf16*>(weight)[i]);
  return to_float(static_cast<const f16*>(weight)[i]);
}

// Codes on a card. Included by .cu files only.

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

/// Element k of a row in 12 bits.
__device__ __forceinline__ float bits12_element(const CodedMatrix& weight, int row, int k) {
  constexpr int half_columns = static_cast<int>(Bits12RowsShape::half_columns);
  const std::byte* const half =
      weight.codes_of<WeightCode::bits12>(row) + k / half_columns * Bits12RowsShape::half_bytes;
  const int eight = k % 32 / 8 * 2 + k % half_columns / 32;
  Bits12LaneRows<1> rows;
  rows.set(0, load8(weight.scales_of<WeightCode::bits12>(row)));
  rows.start(weight.patches);
  const std::byte* const codes = half + Bits12RowsShape::codes_at + eight * 4;
  uint4 values[1] = {
      rows.widen(0, load8(half + eight * 8), *reinterpret_cast<const std::uint32_t*>(codes))};
  rows.patch(k / 8 * 8, values);
  const std::uint32_t low = k % 4 < 2 ? values[0].x : values[0].y;
  const std::uint32_t high = k % 4 < 2 ? values[0].z : values[0].w;
  const std::uint32_t pair = k % 8 < 4 ? low : high;
  return std::bit_cast<float>(k % 2 == 0 ? pair << 16 : pair & 0xffff0000U);
}

/// Element k of a row in blocks of any type.
__device__ __forceinline__ float block_element(const CodedMatrix& weight, int row, int k);

/// Element k of a row.
template <WeightCode Code>
__device__ __forceinline__ float coded_element(const CodedMatrix& weight, int row, int k) {
  if constexpr (Code == WeightCode::bits12) return bits12_element(weight, row, k);
  if constexpr (Code == WeightCode::blocks) return block_element(weight, row, k);
  using Shape = CodedRowsShape;
  constexpr int chunk_columns = static_cast<int>(Shape::chunk_columns);
  constexpr int chunk_bytes = static_cast<int>(Shape::chunk_bytes(Code));
  const std::int64_t chunk = static_cast<std::int64_t>(row) * weight.chunks + k / chunk_columns;
  const auto place = static_cast<int>(place_in_chunk(k % chunk_columns));
  const auto* const codes = weight.codes + chunk * chunk_bytes;
  const int group = k % chunk_columns / static_cast<int>(Shape::group_columns);
  float scale;
  if constexpr (Code == WeightCode::fp8) {
    scale = reinterpret_cast<const float*>(weight.scales)[chunk];
  } else if constexpr (Code == WeightCode::mxfp4) {
    scale = e8m0_to_float(static_cast<std::uint8_t>(weight.scales[chunk * Shape::groups + group]));
  } else {
    scale = to_float(reinterpret_cast<const bf16*>(weight.scales)[chunk * Shape::groups + group]);
  }
  std::uint32_t bits;
  if constexpr (has_nibbles(Code)) {
    const unsigned both = static_cast<unsigned>(codes[place / 2]);
    bits = level_bits<Code>(both >> (place % 2 * 4) & 15U);
  } else {
    bits = level_bits<Code>(static_cast<unsigned>(codes[place]));
  }
  return std::bit_cast<float>(bits << 16) * scale;
}

/// Calls body.operator()<Code>() with the code of a weight that has codes, whatever their bits.
template <typename Body>
void visit_code(WeightCode code, Body&& body) {
  if (code == WeightCode::fp8) return body.template operator()<WeightCode::fp8>();
  if (code == WeightCode::q8) return body.template operator()<WeightCode::q8>();
  if (code == WeightCode::q4) return body.template operator()<WeightCode::q4>();
  if (code == WeightCode::mxfp4) return body.template operator()<WeightCode::mxfp4>();
  if (code == WeightCode::blocks || code == WeightCode::groups) {
    return body.template operator()<WeightCode::blocks>();
  }
  require(code == WeightCode::bits12, "a weight with codes");
  body.template operator()<WeightCode::bits12>();
}

/// The same with a product_code, or with plain.
template <typename Body>
void visit_any_code(WeightCode code, Body&& body) {
  if (code == WeightCode::plain) return body.template operator()<WeightCode::plain>();
  if (code == blocks5) return body.template operator()<blocks5>();
  if (code == blocks6) return body.template operator()<blocks6>();
  if (code == blocks8) return body.template operator()<blocks8>();
  if (code == blocks_nvfp4) return body.template operator()<blocks_nvfp4>();
  visit_code(code, body);
}

/// The decoder of every product: what a lane takes of 64 columns of a row, half a chunk, is 16
/// codes and the word with the scales of both groups. Neither the matrix instructions nor the loads
/// of x know the code.
template <WeightCode Code>
struct LaneCodes {
  static constexpr int bytes = packs_nibbles<Code> ? 8 : 16;
  static constexpr int half_bytes = 4 * bytes;  ///< of a row, for its 4 lanes
  using Vector = std::conditional_t<packs_nibbles<Code>, uint2, uint4>;
};
inline constexpr int half_columns = 64;

/// Returns which word of a row's scales belongs to half chunk `half`.
template <WeightCode Code>
__device__ __forceinline__ int scale_word(const GgufRowTraits& traits, int half) {
  if constexpr (is_blocks(Code)) return first_word<Code>(traits, half);
  return Code == WeightCode::fp8 || Code == WeightCode::mxfp4 ? half / 2 : half;
}
/// Returns the half's part of that word: with mxfp4 a word has the scales of two halves.
template <WeightCode Code>
__device__ __forceinline__ std::uint32_t scales_of_half(std::uint32_t word, int half) {
  if constexpr (Code == WeightCode::mxfp4) return word >> (half % 2 * 16);
  return word;
}
/// Returns the scale of group 0 or 1 of a half, from scales_of_half.
template <WeightCode Code>
__device__ __forceinline__ float scale_of(std::uint32_t word, int group) {
  if constexpr (Code == WeightCode::fp8) return std::bit_cast<float>(word);
  if constexpr (Code == WeightCode::mxfp4) {
    return e8m0_to_float(static_cast<std::uint8_t>(word >> (group * 8) & 0xffU));
  }
  return std::bit_cast<float>(group == 0 ? word << 16 : word & 0xffff0000U);
}

/// Starts the copy of a half's words to shared memory.
template <WeightCode Code>
__device__ __forceinline__ void copy_scales(ScaleWords<Code>* to, const std::byte* words, int half,
                                            const GgufRowTraits& traits, bool is_there) {
  cp_async<4>(to, words + scale_word<Code>(traits, half) * 4, is_there);
  if constexpr (has_second_word<Code>) {
    cp_async<4>(&to->y, words + second_word<Code>(traits, half) * 4, is_there);
  }
}
__device__ __forceinline__ uint2 load_scales(const std::uint32_t* from) { return {*from, 0}; }
__device__ __forceinline__ uint2 load_scales(const uint2* from) { return load8(from); }

/// Returns the group scales of a group, from a half's words.
template <WeightCode Code>
__device__ __forceinline__ GroupScales group_scales(uint2 words, int half, int group,
                                                    const GgufRowTraits& traits) {
  if constexpr (is_blocks(Code)) {
    return block_scales<Code>(words, half, group, traits);
  } else {
    return {scale_of<Code>(scales_of_half<Code>(words.x, half), group), 0.0F};
  }
}

/// Four bytes, by the four codes of 4 bits in the low half of `codes`, of a table of 16.
__device__ __forceinline__ std::uint32_t look_up(const std::uint32_t (&table)[4],
                                                 std::uint32_t codes) {
  const std::uint32_t low = permute_bytes(table[0], table[1], codes & 0x7777U);
  const std::uint32_t high = permute_bytes(table[2], table[3], codes & 0x7777U);
  return permute_bytes(low, high, 0x3210U | (codes >> 1 & 0x4444U));
}

/// One byte each of the bf16 of levels 4*word to 4*word+3 of a code of 4 bits; of blocks of IQ4.
constexpr std::uint32_t nibble_bytes(WeightCode code, std::size_t word, int shift) {
  std::uint32_t bytes = 0;
  for (std::size_t i = 4; i-- > 0;) {
    const auto bits = static_cast<std::uint8_t>(word * 4 + i);
    const float number =
        code == WeightCode::blocks ? static_cast<float>(iq4_levels[bits]) : level_of(code, bits);
    const unsigned level = to_bf16(number).bits;
    bytes = bytes << 8 | (level >> shift & 0xffU);
  }
  return bytes;
}

/// Eight levels as bf16, each exact, from eight codes: of 4 bits in `low` alone. What is NaN of fp8
/// has a scale that is NaN (CodedRowsShape), and any level.
template <WeightCode Code>
__device__ __forceinline__ uint4 levels_of(std::uint32_t low, std::uint32_t high) {
  if constexpr (Code == WeightCode::fp8) {
    return widen_finite(low, high);
  } else if constexpr (Code == WeightCode::q8) {
    // The size is a denormal of bf16 in units of 2^-133.
    const auto pair = [](std::uint32_t halves) {
      const std::uint32_t tiny = halves & 0x807f807fU;
      return multiply_pairs(multiply_pairs(tiny, 0x7f007f00U), 0x42804280U);  // 2^127 * 2^6
    };
    return {pair(extend_bytes<0>(low)), pair(extend_bytes<2>(low)), pair(extend_bytes<0>(high)),
            pair(extend_bytes<2>(high))};
  } else {
    constexpr std::uint32_t lows[4] = {nibble_bytes(Code, 0, 0), nibble_bytes(Code, 1, 0),
                                       nibble_bytes(Code, 2, 0), nibble_bytes(Code, 3, 0)};
    constexpr std::uint32_t highs[4] = {nibble_bytes(Code, 0, 8), nibble_bytes(Code, 1, 8),
                                        nibble_bytes(Code, 2, 8), nibble_bytes(Code, 3, 8)};
    const std::uint32_t first[2] = {look_up(lows, low), look_up(highs, low)};
    const std::uint32_t last[2] = {look_up(lows, low >> 16), look_up(highs, low >> 16)};
    return {permute_bytes(first[0], first[1], 0x5140), permute_bytes(first[0], first[1], 0x7362),
            permute_bytes(last[0], last[1], 0x5140), permute_bytes(last[0], last[1], 0x7362)};
  }
}

/// Returns the levels of group 0 or 1 of a lane's codes; of 5 and 6 bits z has the upper ones, from
/// the half's on.
template <WeightCode Code>
__device__ __forceinline__ uint4 levels_of_group(uint4 codes, int group,
                                                 const GgufRowTraits& traits) {
  const std::uint32_t own = group == 0 ? codes.x : codes.y;
  if constexpr (Code == blocks8) {
    return group == 0 ? block_levels<Code>(codes.x, codes.y, 0, traits)
                      : block_levels<Code>(codes.z, codes.w, 0, traits);
  } else if constexpr (has_upper_bits<Code>) {
    return block_levels<Code>(own, 0, codes.z >> (group * (Code == blocks5 ? 4 : 8)), traits);
  } else if constexpr (Code == blocks_nvfp4) {
    return levels_of<WeightCode::mxfp4>(own, 0);
  } else if constexpr (Code == blocks4) {
    return traits.has_table != 0 ? levels_of<Code>(own, 0) : block_levels<Code>(own, 0, 0, traits);
  } else if constexpr (has_nibbles(Code)) {
    return levels_of<Code>(own, 0);
  } else {
    return group == 0 ? levels_of<Code>(codes.x, codes.y) : levels_of<Code>(codes.z, codes.w);
  }
}
__device__ __forceinline__ float block_element(const CodedMatrix& weight, int row, int k) {
  const GgufRowTraits& traits = weight.traits;
  const int half = k / half_columns, group = k % half_columns / 32, in = k % 32;
  const bool is_nvfp4 = traits.has_table == 2, sixteens = traits.bits == 6 || is_nvfp4;
  const int q = sixteens ? in % 16 / 4 : in / 8;
  const int i = sixteens ? in / 16 * 4 + in % 4 : in % 8;
  const auto* const words =
      reinterpret_cast<const std::uint32_t*>(weight.scales_of<WeightCode::blocks>(row));
  const auto of = [&]<WeightCode Code>(std::uint32_t low, std::uint32_t high) {
    uint2 scales = {words[first_word<Code>(traits, half)], 0};
    if constexpr (has_second_word<Code>) scales.y = words[second_word<Code>(traits, half)];
    std::uint32_t upper = 0;
    if constexpr (has_upper_bits<Code>) {
      upper = upper_of_half<Code>(words[upper_word<Code>(traits, half, q)], half);
    }
    const uint4 codes = Code == blocks8 ? uint4{low, high, low, high} : uint4{low, low, upper, 0};
    const uint4 levels = levels_of_group<Code>(codes, group, traits);
    const std::uint32_t pair =
        i < 4 ? (i < 2 ? levels.x : levels.y) : (i < 6 ? levels.z : levels.w);
    const float level = std::bit_cast<float>(i % 2 == 0 ? pair << 16 : pair & 0xffff0000U);
    const GroupScales scale = group_scales<Code>(scales, half, group, traits);
    const bool is_other = has_sixteens<Code> && in >= 16;
    const float product = product_rounded(is_other ? scale.other : scale.scale, level);
    return has_mins<Code>(traits) ? product - scale.other : product;
  };
  if (traits.bits == 8) {
    const uint2 eight =
        load8(weight.codes_of<blocks8>(row) + half * half_columns + q * 16 + group * 8);
    return of.template operator()<blocks8>(eight.x, eight.y);
  }
  const std::uint32_t low = *reinterpret_cast<const std::uint32_t*>(
      weight.codes_of<blocks4>(row) + half * (half_columns / 2) + q * 8 + group * 4);
  if (traits.bits == 5) return of.template operator()<blocks5>(low, 0);
  if (traits.bits == 6) return of.template operator()<blocks6>(low, 0);
  if (is_nvfp4) return of.template operator()<blocks_nvfp4>(low, 0);
  return of.template operator()<blocks4>(low, 0);
}

/// A lane's codes, from a weight that is read once.
template <WeightCode Code>
__device__ __forceinline__ uint4 load_codes_once(const std::byte* from) {
  if constexpr (packs_nibbles<Code>) {
    const uint2 codes = load8(from);
    return {codes.x, codes.y, 0, 0};
  } else {
    return load16_once(from);
  }
}
/// The same from shared memory.
__device__ __forceinline__ uint4 load_codes(const uint4* from) { return load16(from); }
__device__ __forceinline__ uint4 load_codes(const uint2* from) {
  const uint2 codes = load8(from);
  return {codes.x, codes.y, 0, 0};
}

/// A row of codes as one lane reads it; its scales are words of 4 bytes, some way after.
template <WeightCode Code>
struct LaneRow {
  const std::byte* codes;
  std::uint32_t words_to_scales;
  GgufRowTraits traits;  ///< of blocks

  LaneRow() = default;
  __device__ LaneRow(const CodedMatrix& weight, std::int64_t row)
      : codes(weight.codes_of<Code>(row) +
              static_cast<int>(threadIdx.x) % 4 * LaneCodes<Code>::bytes),
        words_to_scales(static_cast<std::uint32_t>((weight.scales_of<Code>(row) - codes) / 4)),
        traits(weight.traits) {}

  /// Returns what group_scales takes.
  __device__ __forceinline__ uint2 scales(int half) const {
    uint2 words = {word(scale_word<Code>(traits, half)), 0};
    if constexpr (has_second_word<Code>) words.y = word(second_word<Code>(traits, half));
    return words;
  }
  /// Returns the upper bits of codes of 5 and 6 bits, from the half's on.
  __device__ __forceinline__ std::uint32_t upper(int half) const {
    const int q = static_cast<int>(threadIdx.x) % 4;
    return upper_of_half<Code>(word(upper_word<Code>(traits, half, q)), half);
  }

 private:
  __device__ __forceinline__ std::uint32_t word(int i) const {
    return reinterpret_cast<const std::uint32_t*>(
        codes)[words_to_scales + static_cast<std::uint32_t>(i)];
  }
};

template <>
struct LaneRow<WeightCode::bits12> {
  const std::byte* codes;  ///< of the row
  uint2 header;
  const std::uint32_t* patches;

  LaneRow() = default;
  __device__ LaneRow(const CodedMatrix& weight, std::int64_t row)
      : codes(weight.codes_of<WeightCode::bits12>(row)),
        header(load8(weight.scales_of<WeightCode::bits12>(row))),
        patches(weight.patches) {}
};

/// Copies a lane's codes to shared memory.
__device__ __forceinline__ void copy_codes(uint4* to, const std::byte* from, bool is_there) {
  cp_async16(to, from, is_there);
}
__device__ __forceinline__ void copy_codes(uint2* to, const std::byte* from, bool is_there) {
  cp_async<8>(to, from, is_there);
}

/// A weight in rows of any type or code.
struct AnyWeight {
  const std::byte* data;
  DType type;
  WeightCode code;
  std::int64_t rows, columns;
  CodedExperts experts;  ///< with codes

  __device__ __forceinline__ CodedMatrix coded(std::int64_t expert) const {
    return experts[expert];
  }

  /// A row as multiply_rows reads it.
  template <WeightCode Code>
  __device__ __forceinline__ auto lane_row(std::int64_t expert, std::int64_t row) const {
    if constexpr (Code == WeightCode::plain) {
      return reinterpret_cast<const bf16*>(data) + (expert * rows + row) * columns;
    } else {
      return LaneRow<Code>(coded(expert), row);
    }
  }

  __device__ __forceinline__ float at(std::int64_t expert, std::int64_t row, int k) const {
    if (code == WeightCode::plain) {
      return weight_at(data, type, (expert * rows + row) * columns + k);
    }
    const CodedMatrix matrix = coded(expert);
    const auto n = static_cast<int>(row);
    if (code == WeightCode::q4) return coded_element<WeightCode::q4>(matrix, n, k);
    if (code == WeightCode::q8) return coded_element<WeightCode::q8>(matrix, n, k);
    if (code == WeightCode::bits12) return coded_element<WeightCode::bits12>(matrix, n, k);
    if (is_blocks(code)) return block_element(matrix, n, k);
    if (code == WeightCode::mxfp4) return coded_element<WeightCode::mxfp4>(matrix, n, k);
    return coded_element<WeightCode::fp8>(matrix, n, k);
  }
};

inline AnyWeight any_weight(const Weight& weight) {
  require(weight.order(0).empty(), "weight: no kernel for experts reads columns in an order");
  return {.data = weight.expert(0),
          .type = weight.dtype(),
          .code = product_code(weight),
          .rows = weight.rows(),
          .columns = weight.columns(),
          .experts = weight.code() != WeightCode::plain ? coded_experts(weight) : CodedExperts{}};
}

}  // namespace hyb::kernels::cuda
