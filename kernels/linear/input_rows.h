#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/norm_slices.h"
#include "kernels/cuda/vectors.h"
#include "kernels/linear/linear.cuh"

/// The rows of x that a block multiplies with, normed on their way into shared memory. Sums are in
/// the order of rms_norm.cu and gated_norm.cu, so that the normed row is their bits. Included by
/// .cu files only.
namespace hyb::kernels::cuda {

constexpr int norm_slices_max = 64;  ///< of all rows of a block, unless they are narrow

template <int Warps>
struct NormPartials {
  SharedArray<SharedArray<float, Warps>, norm_slices_max> squares;
};

/// Brings a norm's weight near while other kernels still run.
__device__ __forceinline__ void prefetch_norm(const DenseNorm& norm, int width) {
  constexpr int line = 32;  // floats
  if (norm.weight == nullptr) return;
  for (int k = static_cast<int>(threadIdx.x) * line; k < width;
       k += static_cast<int>(blockDim.x) * line) {
    prefetch(norm.weight + k);
  }
}

__device__ __forceinline__ void apply_gate(uint4 gate, float (&values)[8]) {
  float z[8];
  unpack(gate, z);
  for (int j = 0; j < 8; ++j) values[j] *= silu(z[j]);
}

/// Elements from `column` of a row on, times what is the slice's and their weights.
__device__ __forceinline__ void scale_values(const DenseNorm& norm, int column, float scale,
                                             float (&values)[8]) {
  float weight[8];
  for (int j = 0; j < 8; ++j) weight[j] = norm.weight[column + j];
  if (norm.gate == nullptr) {
    for (int j = 0; j < 8; ++j) values[j] = values[j] * scale * (norm.weight_offset + weight[j]);
  } else {
    for (int j = 0; j < 8; ++j) values[j] *= scale * weight[j];
  }
}

template <int Warps>
__device__ __forceinline__ void copy_rows(bf16* to, const bf16* x, std::int64_t x_stride,
                                          int tokens, int inner) {
  for (int t = 0; t < tokens; ++t) {
#pragma unroll 1
    for (int k = static_cast<int>(threadIdx.x) * 8; k < inner; k += Warps * warp_size * 8) {
      store16(to + t * inner + k, load16(x + t * x_stride + k));
    }
  }
}

/// Whether a slice is a vector for each of some neighbouring lanes, a power of two of them.
constexpr bool is_narrow_slice(int width) {
  const int lanes = width / 8;
  return width % 8 == 0 && lanes <= warp_size && (lanes & (lanes - 1)) == 0;
}

/// Narrow slices are contiguous in the warps, and two vectors of each thread are in flight
/// together. The lanes that a whole warp would have over add zeros to its sum: the bits are those
/// of a warp for each slice.
template <int Warps>
__device__ __forceinline__ void stage_narrow_slices(bf16* to, const bf16* x, std::int64_t x_stride,
                                                    int tokens, int inner, const DenseNorm& norm) {
  constexpr int step = Warps * warp_size * 8, together = 2;
  const int width = inner / norm.groups, all = tokens * inner;
  const bool is_gated = norm.gate != nullptr;
#pragma unroll 1
  for (int base = 0; base < all; base += together * step) {
    const int own = base + static_cast<int>(threadIdx.x) * 8;
    uint4 inputs[together] = {}, gates[together] = {};
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const int at = own + i * step, token = at / inner, column = at % inner;
      if (at >= all) continue;
      inputs[i] = load16(x + token * x_stride + column);
      if (is_gated) gates[i] = load16(norm.gate + token * norm.gate_stride + column);
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const int at = own + i * step;
      float values[8], squares = 0.0F;
      unpack(inputs[i], values);
      if (is_gated && !norm.norm_first) apply_gate(gates[i], values);
      for (const float value : values) squares += value * value;
      for (int bits = width / 16; bits > 0; bits /= 2) squares += shuffle_xor(squares, bits);
      if (at >= all) continue;
      const float scale = 1.0F / sqrtf(squares / static_cast<float>(width) + norm.eps);
      scale_values(norm, at % inner, scale, values);
      if (norm.norm_first) apply_gate(gates[i], values);
      store16(to + at, pack(values));
    }
  }
}

/// Writes the normed rows of x to `to`, one after another; the caller has to pass a
/// barrier. Both passes give a thread the same elements.
template <int Warps>
__device__ __forceinline__ void stage_rows(bf16* to, const bf16* x, std::int64_t x_stride,
                                           int tokens, int inner, const DenseNorm& norm) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / warp_size;
  if (norm.weight == nullptr) return copy_rows<Warps>(to, x, x_stride, tokens, inner);
  const int width = inner / norm.groups, slices = tokens * norm.groups;
  if (is_narrow_slice(width)) {
    return stage_narrow_slices<Warps>(to, x, x_stride, tokens, inner, norm);
  }
  const bool is_block_wide = width > norm_width_of_a_warp;
  const int first = (is_block_wide ? thread : thread % warp_size) * 8;
  const int step = (is_block_wide ? Warps : 1) * warp_size * 8;
  auto& partial = shared_object<NormPartials<Warps>>().squares;
  const auto for_each_slice = [&](auto&& body) {
#pragma unroll 1
    for (int slice = is_block_wide ? 0 : warp; slice < slices; slice += is_block_wide ? 1 : Warps) {
      const int token = slice / norm.groups, column = slice % norm.groups * width;
      const bf16* const gate =
          norm.gate == nullptr ? nullptr : norm.gate + token * norm.gate_stride + column;
      body(slice, column, x + token * x_stride + column, gate, to + token * inner + column);
    }
  };
  const auto load_input = [&](const bf16* from, const bf16* gate, int k, float(&values)[8]) {
    unpack(load16(from + k), values);
    if (gate != nullptr && !norm.norm_first) apply_gate(load16(gate + k), values);
  };
  const auto squares_of = [&](const bf16* from, const bf16* gate) {
    float squares = 0.0F;
#pragma unroll 1
    for (int k = first; k < width; k += step) {
      float values[8];
      load_input(from, gate, k, values);
      for (const float value : values) squares += value * value;
    }
    return warp_sum(squares);
  };
  const auto norm_slice = [&](int column, const bf16* from, const bf16* gate, bf16* row,
                              float squares) {
    const float scale = 1.0F / sqrtf(squares / static_cast<float>(width) + norm.eps);
#pragma unroll 1
    for (int k = first; k < width; k += step) {
      float values[8];
      load_input(from, gate, k, values);
      scale_values(norm, column + k, scale, values);
      if (norm.norm_first) apply_gate(load16(gate + k), values);
      store16(row + k, pack(values));
    }
  };
  if (!is_block_wide) {
    for_each_slice([&](int, int column, const bf16* from, const bf16* gate, bf16* row) {
      norm_slice(column, from, gate, row, squares_of(from, gate));
    });
    return;
  }
  for_each_slice([&](int slice, int, const bf16* from, const bf16* gate, bf16*) {
    const float squares = squares_of(from, gate);
    if (thread % warp_size == 0) partial[slice][warp] = squares;
  });
  sync_block();
  for_each_slice([&](int slice, int column, const bf16* from, const bf16* gate, bf16* row) {
    float squares = 0.0F;
    for (int i = 0; i < Warps; ++i) squares += partial[slice][i];
    norm_slice(column, from, gate, row, squares);
  });
}

}  // namespace hyb::kernels::cuda
