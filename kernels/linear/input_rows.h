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

constexpr int norm_slices_max = 64;            ///< of all rows of a block, unless they are narrow
constexpr std::size_t x_bytes_max = 48 << 10;  ///< with 48 KB of W in flight 96 of sm_86's 99

constexpr std::size_t x_bytes(int tokens, int inner) {
  return static_cast<std::size_t>(tokens) * inner * sizeof(bf16);
}

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

/// Says whether a slice is a vector for each of some neighbouring lanes, a power of two of them.
constexpr bool is_narrow_slice(int width) {
  const int lanes = width / 8;
  return width % 8 == 0 && lanes <= warp_size && (lanes & (lanes - 1)) == 0;
}

/// Says whether the rows fit in shared memory with the weights in flight, and their slices' sums.
constexpr bool takes_norm(int tokens, int inner, int groups) {
  return x_bytes(tokens, inner) <= x_bytes_max &&
         (tokens * groups <= norm_slices_max || is_narrow_slice(inner / groups));
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

/// Holds what a thread has of the rows: vectors of slices that a warp or the whole block shares.
/// Their numbers ascend with the slice, and within it with the column.
template <int Warps>
struct OwnVectors {
  int width;                    ///< of a slice
  int first_slice, slice_step;  ///< of the thread's slices
  int first, step;              ///< of its columns in each
  int per_slice, count;         ///< the last of a slice may be past its end

  __device__ OwnVectors(int slices, int of_width, bool is_block_wide) : width(of_width) {
    const int thread = static_cast<int>(threadIdx.x);
    first_slice = is_block_wide ? 0 : thread / warp_size;
    slice_step = is_block_wide ? 1 : Warps;
    first = (is_block_wide ? thread : thread % warp_size) * 8;
    step = (is_block_wide ? Warps : 1) * warp_size * 8;
    per_slice = (width + step - 1) / step;
    const int own = (slices - first_slice + slice_step - 1) / slice_step;
    count = own > 0 ? own * per_slice : 0;
  }
  __device__ int slice(int i) const { return first_slice + i / per_slice * slice_step; }
  __device__ int column(int i) const { return first + i % per_slice * step; }
  __device__ bool is_there(int i) const { return i < count && column(i) < width; }
};

/// Some of them, on their way together: as the norm squares them, by the gate already where that
/// comes first.
template <int Warps, int Together>
struct StagedVectors {
  const OwnVectors<Warps>& own;
  const DenseNorm& norm;
  int groups;
  float values[Together][8];
  uint4 gates[Together];

  __device__ StagedVectors(const OwnVectors<Warps>& all, const DenseNorm& of, int of_groups)
      : own(all), norm(of), groups(of_groups) {}

  __device__ __forceinline__ void load(const bf16* x, std::int64_t x_stride, int base) {
    uint4 inputs[Together];
#pragma unroll
    for (int j = 0; j < Together; ++j) {
      inputs[j] = gates[j] = {};
      if (!own.is_there(base + j)) continue;
      const int slice = own.slice(base + j), token = slice / groups;
      const int column = slice % groups * own.width + own.column(base + j);
      inputs[j] = load16(x + token * x_stride + column);
      if (norm.gate != nullptr) gates[j] = load16(norm.gate + token * norm.gate_stride + column);
    }
#pragma unroll
    for (int j = 0; j < Together; ++j) {
      unpack(inputs[j], values[j]);
      if (norm.gate != nullptr && !norm.norm_first) apply_gate(gates[j], values[j]);
    }
  }
  /// After finish(j, slice, column of the row).
  template <typename Finish>
  __device__ __forceinline__ void store(bf16* to, int base, Finish&& finish) {
#pragma unroll
    for (int j = 0; j < Together; ++j) {
      if (!own.is_there(base + j)) continue;
      const int slice = own.slice(base + j), column = own.column(base + j);
      finish(j, slice, slice % groups * own.width + column);
      store16(to + slice * own.width + column, pack(values[j]));
    }
  }
};

/// Writes the normed rows of x to `to`, one after another; the caller has to pass a barrier.
/// `Together` vectors of a thread are on their way at a time. Where it has no more, they stay in
/// registers between the sum of squares and the scaling: x is read once, and gates are applied
/// once.
template <int Warps, int Together>
__device__ __forceinline__ void stage_rows(bf16* to, const bf16* x, std::int64_t x_stride,
                                           int tokens, int inner, const DenseNorm& norm) {
  const bool has_norm = norm.weight != nullptr;
  const int groups = has_norm ? norm.groups : 1, width = inner / groups;
  if (has_norm && is_narrow_slice(width)) {
    return stage_narrow_slices<Warps>(to, x, x_stride, tokens, inner, norm);
  }
  const bool is_block_wide = !has_norm || width > norm_width_of_a_warp;
  const OwnVectors<Warps> own(tokens * groups, width, is_block_wide);
  StagedVectors<Warps, Together> staged(own, norm, groups);
  if (!has_norm) {
#pragma unroll 1
    for (int base = 0; base < own.count; base += Together) {
      staged.load(x, x_stride, base);
      staged.store(to, base, [](int, int, int) {});
    }
    return;
  }

  auto& partial = shared_object<NormPartials<Warps>>().squares;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  float squares = 0.0F;
#pragma unroll 1
  for (int base = 0; base < own.count; base += Together) {
    staged.load(x, x_stride, base);
#pragma unroll
    for (int j = 0; j < Together; ++j) {
      if (base + j >= own.count) break;
      if ((base + j) % own.per_slice == 0) squares = 0.0F;
      for (const float value : staged.values[j]) squares += value * value;
      if ((base + j + 1) % own.per_slice != 0) continue;
      const float sum = warp_sum(squares);
      if (threadIdx.x % warp_size == 0) {
        partial[own.slice(base + j)][is_block_wide ? warp : 0] = sum;
      }
    }
  }
  sync_block();
  int scaled = -1;  // the slice that `scale` is of
  float scale = 0.0F;
#pragma unroll 1
  for (int base = 0; base < own.count; base += Together) {
    if (own.count > Together) staged.load(x, x_stride, base);
    staged.store(to, base, [&](int j, int slice, int column) {
      if (slice != scaled) {
        float all = partial[slice][0];
        for (int i = 1; i < Warps && is_block_wide; ++i) all += partial[slice][i];
        scale = 1.0F / sqrtf(all / static_cast<float>(width) + norm.eps);
        scaled = slice;
      }
      scale_values(norm, column, scale, staged.values[j]);
      if (norm.norm_first) apply_gate(staged.gates[j], staged.values[j]);
    });
  }
}

/// stage_rows with its barrier; where the normed rows are kept, the first block writes them.
template <int Warps, int Together>
__device__ __forceinline__ void stage_all_rows(bf16* to, const bf16* x, std::int64_t x_stride,
                                               int tokens, int inner, const DenseNorm& norm) {
  stage_rows<Warps, Together>(to, x, x_stride, tokens, inner, norm);
  sync_block();
  if (norm.kept == nullptr || blockIdx.x != 0) return;
  for (int at = static_cast<int>(threadIdx.x) * 8; at < tokens * inner;
       at += Warps * warp_size * 8) {
    store16(norm.kept + at / inner * norm.kept_stride + at % inner, load16(to + at));
  }
}

}  // namespace hyb::kernels::cuda
