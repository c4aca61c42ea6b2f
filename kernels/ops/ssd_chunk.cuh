#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/chunk_tile.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/ssd_params.cuh"
#include "kernels/ops/ssd_segments.h"

/// What a block does with one chunk of tokens, by four warps. Tokens' inputs stand in shared memory
/// as bf16, the state in registers as f32: a warp owns a quarter of its columns.
namespace hyb::kernels::cuda {

static_assert(chunk_tokens == ssd_chunk_tokens);

/// A chunk's step sizes: dt; the logarithm of what is left of the state before the chunk once the
/// token has been; and the token's weight in the state behind the chunk.
struct ChunkSteps {
  SharedArray<float, chunk_tokens> dt, log_decay, weight;
  SharedArray<float, 1> total;  ///< log_decay of the last token
};

/// Two bf16 times two numbers, rounded again.
__device__ __forceinline__ std::uint32_t scaled_pair(std::uint32_t pair, const float (&by)[2]) {
  return pack_bf16(std::bit_cast<float>(pair << 16) * by[0],
                   std::bit_cast<float>(pair & 0xffff0000U) * by[1]);
}

/// What every kernel of the chunked form is told; the state's type only counts at a span's ends.
struct ChunkParams : SsdParams<bf16, void> {
  bool state_is_bf16;
  int spans;
  int parts;                               ///< of a head's rows, each a block's
  float *segment_states, *segment_decays;  ///< [segments,heads,P,N], [segments,heads]
  int x_step, y_step;                      ///< from token to token: 64 of them stay below 2^31
  int segment_tokens;                      ///< 0: spans are whole

  /// Elements of the state of all heads.
  __host__ __device__ std::int64_t slot_size() const {
    return static_cast<std::int64_t>(heads) * rows * columns;
  }
};

/// The raw dt of two tokens per lane of one warp.
struct RawSteps {
  float first, second;
};
__device__ __forceinline__ RawSteps load_steps(const ChunkParams& p, int head, int token,
                                               int last) {
  const int at = token + 2 * (static_cast<int>(threadIdx.x) % warp_size);
  const bf16* const dt = p.dt + at * p.dt_stride + head;
  return {at < last ? to_float(dt[0]) : 0.0F, at + 1 < last ? to_float(dt[p.dt_stride]) : 0.0F};
}

/// One warp makes the steps of the chunk at `token`; tokens from `last` on do nothing.
__device__ __forceinline__ void make_steps(const ChunkParams& p, int head, int token, int last,
                                           RawSteps raw, ChunkSteps& steps) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  float dt[2], log_decay[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float value = (i == 0 ? raw.first : raw.second) + p.dt_bias[head];
    const bool is_there = token + 2 * lane + i < last;
    dt[i] = is_there ? step_size(value, p.dt_min, p.dt_max) : 0.0F;
    const float exact = dt[i] * -expf(p.a_log[head]);
    log_decay[i] = exact < log_decay_min ? log_decay_min : exact;
  }
  float sum = log_decay[0] + log_decay[1];
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const float below = shuffle_up(sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += below;
  }
  const float before = shuffle_up(sum, 1);
  const float total = shuffle(sum, warp_size - 1);
  const float sums[2] = {(lane == 0 ? 0.0F : before) + log_decay[0], sum};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    steps.dt[2 * lane + i] = dt[i];
    steps.log_decay[2 * lane + i] = sums[i];
    steps.weight[2 * lane + i] = dt[i] * exp_not_above_one(total - sums[i]);
  }
  if (lane == 0) steps.total[0] = total;
}

/// A block's part of the state in a warp's registers: Rows/16 by Columns/4/8 tiles of 16x8, as
/// mma_bf16 leaves them.
template <int Rows, int Columns>
struct ChunkState {
  static constexpr int row_tiles = Rows / 16, warp_columns = Columns / chunk_warps;
  static constexpr int column_tiles = warp_columns / 8;

  float values[row_tiles][column_tiles][4];

  /// body(row, column, first, second) for every pair of neighbours.
  template <typename Body>
  __device__ __forceinline__ void each_pair(Body&& body) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int column = static_cast<int>(threadIdx.x) / warp_size * warp_columns + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < column_tiles; ++n) {
        float(&tile)[4] = values[m][n];
        body(m * 16 + lane / 4, column + n * 8, tile[0], tile[1]);
        body(m * 16 + lane / 4 + 8, column + n * 8, tile[2], tile[3]);
      }
    }
  }

  /// From rows of `Columns`; null: zeros.
  template <typename S>
  __device__ __forceinline__ void load(const S* from) {
    each_pair([&](int row, int column, float& first, float& second) {
      const float2 pair = from == nullptr ? float2{0, 0} : load_pair(from + row * Columns + column);
      first = pair.x;
      second = pair.y;
    });
  }
  template <typename S>
  __device__ __forceinline__ void store(S* to) {
    each_pair([&](int row, int column, float first, float second) {
      store_pair(to + row * Columns + column, first, second);
    });
  }
  __device__ __forceinline__ void spread(ChunkTile<Rows, Columns>& to) {
    each_pair([&](int row, int column, float first, float second) {
      store_pair(to.at(row, column), first, second);
    });
  }

  /// state <- decay * state + x^T (weight * b): to the state behind the chunk.
  __device__ __forceinline__ void move_on(const ChunkTile<chunk_tokens, Rows>& x,
                                          const ChunkTile<chunk_tokens, Columns>& b,
                                          const ChunkSteps& steps, int tokens) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int column = static_cast<int>(threadIdx.x) / warp_size * warp_columns;
    const float decay = exp_not_above_one(steps.total[0]);
#pragma unroll
    for (auto& row : values) {
#pragma unroll
      for (auto& tile : row) {
#pragma unroll
        for (float& value : tile) value *= decay;
      }
    }
#pragma unroll 1
    for (int k = 0; k < chunk_tokens && k < tokens; k += 16) {
      const int token = k + lane % 4 * 2;
      const float low[2] = {steps.weight[token], steps.weight[token + 1]};
      const float high[2] = {steps.weight[token + 8], steps.weight[token + 9]};
      std::uint32_t weighted[column_tiles][2];
#pragma unroll
      for (int n = 0; n < column_tiles; n += 2) {
        std::uint32_t pairs[4];
        ldmatrix_x4_transposed(
            pairs, b.at(k + lane % 8 + lane / 8 % 2 * 8, column + n * 8 + lane / 16 * 8));
        weighted[n][0] = scaled_pair(pairs[0], low);
        weighted[n][1] = scaled_pair(pairs[1], high);
        weighted[n + 1][0] = scaled_pair(pairs[2], low);
        weighted[n + 1][1] = scaled_pair(pairs[3], high);
      }
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        std::uint32_t a[4];
        ldmatrix_x4_transposed(a, x.at(k + lane % 8 + lane / 16 * 8, m * 16 + lane / 8 % 2 * 8));
#pragma unroll
        for (int n = 0; n < column_tiles; ++n) {
          mma_bf16(values[m][n], a, weighted[n][0], weighted[n][1]);
        }
      }
    }
  }
};

/// 16 tokens of y, by a warp: rows lane/4 and lane/4 + 8 of its own, as mma_bf16 leaves them.
template <int Rows>
struct ChunkAnswer {
  static constexpr int tiles = Rows / 8;

  float values[tiles][4];
  int first;  ///< this lane's upper token in the chunk; the lower is 8 behind

  /// values = exp(log_decay) * c state^T + (c b^T, causal and decayed) (dt x)
  template <int Columns>
  __device__ __forceinline__ void make(const ChunkTile<chunk_tokens, Columns>& c,
                                       const ChunkTile<chunk_tokens, Columns>& b,
                                       const ChunkTile<chunk_tokens, Rows>& x,
                                       const ChunkTile<Rows, Columns>& state,
                                       const ChunkSteps& steps) {
    constexpr int key_tiles = chunk_tokens / 16;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    first = warp * 16 + lane / 4;
    float scores[2 * key_tiles][4] = {};
#pragma unroll
    for (auto& tile : values) {
#pragma unroll
      for (float& value : tile) value = 0.0F;
    }
    // A k-row of operands for the transposed right side, two tiles of 8 rows at once.
    const int row = lane % 8 + lane / 16 * 8, column = lane / 8 % 2 * 8;
#pragma unroll 1
    for (int k = 0; k < Columns; k += 16) {
      std::uint32_t a[4], right[4];
      ldmatrix_x4(a, c.at(warp * 16 + lane % 16, k + lane / 16 * 8));
#pragma unroll
      for (int j = 0; j < key_tiles; ++j) {  // all of them: the last warp needs them in any case
        ldmatrix_x4(right, b.at(j * 16 + row, k + column));
        mma_bf16(scores[2 * j], a, right[0], right[1]);
        mma_bf16(scores[2 * j + 1], a, right[2], right[3]);
      }
#pragma unroll
      for (int n = 0; n < tiles; n += 2) {
        ldmatrix_x4(right, state.at(n * 8 + row, k + column));
        mma_bf16(values[n], a, right[0], right[1]);
        mma_bf16(values[n + 1], a, right[2], right[3]);
      }
    }

    const float log_decay[2] = {steps.log_decay[first], steps.log_decay[first + 8]};
    const float start[2] = {exp_not_above_one(log_decay[0]), exp_not_above_one(log_decay[1])};
#pragma unroll
    for (auto& tile : values) {
#pragma unroll
      for (int i = 0; i < 4; ++i) tile[i] *= start[i / 2];
    }
#pragma unroll
    for (int j = 0; j < key_tiles; ++j) {
      if (j > warp) break;
      std::uint32_t a[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float masked[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = first + i / 2 * 8, key = j * 16 + half * 8 + lane % 4 * 2 + i % 2;
          const float decay = exp_not_above_one(log_decay[i / 2] - steps.log_decay[key]);
          masked[i] = scores[2 * j + half][i] * (decay * (key <= token ? steps.dt[key] : 0.0F));
        }
        a[2 * half] = pack_bf16(masked[0], masked[1]);
        a[2 * half + 1] = pack_bf16(masked[2], masked[3]);
      }
#pragma unroll
      for (int n = 0; n < tiles; n += 2) {
        std::uint32_t right[4];
        ldmatrix_x4_transposed(right,
                               x.at(j * 16 + lane % 8 + lane / 8 % 2 * 8, n * 8 + lane / 16 * 8));
        mma_bf16(values[n], a, right[0], right[1]);
        mma_bf16(values[n + 1], a, right[2], right[3]);
      }
    }
  }

  /// y = values + d * x, of the chunk's first `tokens`; `y` is the first one's row.
  __device__ __forceinline__ void store(bf16* y, int stride, int tokens, float d,
                                        const ChunkTile<chunk_tokens, Rows>& x) const {
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first + half * 8;
      if (token >= tokens) break;
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        const float2 input = load_pair(x.at(token, n * 8 + column));
        store_pair(y + token * stride + n * 8 + column, fmaf(d, input.x, values[n][2 * half]),
                   fmaf(d, input.y, values[n][2 * half + 1]));
      }
    }
  }
};

}  // namespace hyb::kernels::cuda
