#include <algorithm>
#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/silu.h"
#include "kernels/cuda/spans.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_threads = 128;
constexpr int group = 4;  ///< tokens whose loads are under way together
constexpr std::int64_t tile_tokens_max = 32;
constexpr std::int64_t blocks_wanted = 1024;  ///< some waves of a large card

template <typename T>
struct Params {
  const T* x;
  T *y, *windows;
  const float *weight, *bias;  // bias null: none
  const std::int32_t *span_begin, *read_slot, *write_slot;
  std::int64_t x_stride, y_stride, slot_stride;
  int channels, spans, tile_tokens;
};

/// What a thread knows of its vector of channels.
template <typename T, int K>
struct Channels {
  static constexpr int count = vector_size<T>;

  int first, left;
  float weight[count][K], bias[count];
  float taps[K - 1][count];  ///< the last inputs, oldest first
};

template <typename T, int K, bool Aligned>
__device__ __forceinline__ void load_weights(const Params<T>& p, Channels<T, K>& own) {
  constexpr int count = Channels<T, K>::count, width = vector_size<float>;
  float flat[K * count / width][width];
#pragma unroll
  for (int v = 0; v < K * count / width; ++v) {
    load_values<Aligned>(p.weight + static_cast<std::int64_t>(own.first) * K + v * width,
                         own.left * K - v * width, flat[v]);
  }
#pragma unroll
  for (int i = 0; i < K * count; ++i) own.weight[i / K][i % K] = flat[i / width][i % width];
#pragma unroll
  for (int c = 0; c < count; ++c) {
    own.bias[c] = p.bias == nullptr || c >= own.left ? 0.0F : p.bias[own.first + c];
  }
}

/// The taps become what the slot holds, or zeros.
template <typename T, int K, bool Aligned>
__device__ __forceinline__ void load_window(const Params<T>& p, std::int64_t slot,
                                            Channels<T, K>& own) {
  constexpr int count = Channels<T, K>::count;
  const T* const from = p.windows + (slot < 0 ? 0 : slot) * p.slot_stride +
                        static_cast<std::int64_t>(own.first) * (K - 1);
  float flat[K - 1][count] = {};
#pragma unroll
  for (int v = 0; v < K - 1; ++v) {
    const int left = own.left * (K - 1) - v * count;
    if (slot >= 0) load_values<Aligned>(from + v * count, left, flat[v]);
  }
#pragma unroll
  for (int i = 0; i < (K - 1) * count; ++i)
    own.taps[i % (K - 1)][i / (K - 1)] = flat[i / count][i % count];
}

/// `x` is the newest tap.
template <typename T, int K>
__device__ __forceinline__ void move_on(const float (&x)[vector_size<T>], Channels<T, K>& own) {
#pragma unroll
  for (int c = 0; c < vector_size<T>; ++c) {
#pragma unroll
    for (int j = 0; j < K - 2; ++j) own.taps[j][c] = own.taps[j + 1][c];
    own.taps[K - 2][c] = x[c];
  }
}

/// The last K-1 inputs of a span; the taps are what lies left of its first token.
template <typename T, int K, bool Aligned>
__device__ __forceinline__ void store_window(const Params<T>& p, std::int64_t slot, int begin,
                                             int end, Channels<T, K> own) {
  constexpr int count = Channels<T, K>::count;
#pragma unroll
  for (int j = 0; j < K - 1; ++j) {
    const int token = end - (K - 1) + j;
    if (token < begin) continue;
    float x[count];
    load_values<Aligned>(p.x + token * p.x_stride + own.first, own.left, x);
    move_on(x, own);
  }
  float flat[K - 1][count];
#pragma unroll
  for (int i = 0; i < (K - 1) * count; ++i) {
    flat[i / count][i % count] = own.taps[i % (K - 1)][i / (K - 1)];
  }
  T* const to = p.windows + slot * p.slot_stride + static_cast<std::int64_t>(own.first) * (K - 1);
#pragma unroll
  for (int v = 0; v < K - 1; ++v) {
    store_values<Aligned>(to + v * count, own.left * (K - 1) - v * count, flat[v]);
  }
}

/// y of one token; the taps move on.
template <typename T, int K, bool Aligned>
__device__ __forceinline__ void convolve(const Params<T>& p, int token,
                                         const float (&x)[vector_size<T>], Channels<T, K>& own) {
  constexpr int count = Channels<T, K>::count;
  float y[count];
#pragma unroll
  for (int c = 0; c < count; ++c) {
    float sum = own.bias[c];
#pragma unroll
    for (int j = 0; j < K - 1; ++j) sum = fmaf(own.weight[c][j], own.taps[j][c], sum);
    y[c] = silu(fmaf(own.weight[c][K - 1], x[c], sum));
  }
  move_on(x, own);
  store_values<Aligned>(p.y + token * p.y_stride + own.first, own.left, y);
}

/// A thread's part of a row as it lies in memory: what is not unpacked yet is not waited for.
template <bool Aligned, typename T>
__device__ __forceinline__ uint4 load_packed(const T* from, int left) {
  if constexpr (Aligned) {
    return load16(from);
  } else {
    float values[vector_size<T>];
    load_values<false>(from, left, values);
    return pack(values);
  }
}

/// Tokens token .. stop-1, all of one span.
template <typename T, int K, bool Aligned>
__device__ __forceinline__ void convolve_run(const Params<T>& p, int token, int stop,
                                             Channels<T, K>& own) {
  for (; token < stop; token += group) {
    uint4 packed[group];
#pragma unroll
    for (int i = 0; i < group; ++i) {
      const int there = token + i < stop ? token + i : token;
      packed[i] = load_packed<Aligned>(p.x + there * p.x_stride + own.first, own.left);
    }
#pragma unroll
    for (int i = 0; i < group; ++i) {
      if (token + i >= stop) break;
      float x[vector_size<T>];
      unpack(packed[i], x);
      convolve<T, K, Aligned>(p, token + i, x, own);
    }
  }
}

/// grid (pieces of the channels, tiles of tokens): a thread owns neighbouring channels, 16 bytes of
/// a row, and walks the tile's tokens with the taps in registers. A span's first K-1 tokens belong
/// to the tile of its very first one, which alone reads the span's window and writes the next: a
/// slot may be both. Sums in the contract's order with one rounding per tap, as mamba_step's, so
/// that neither cuts nor tiles change a bit.
template <typename T, int K, bool Aligned>
__global__ void __launch_bounds__(block_threads, 4) causal_conv_kernel(const Params<T> p) {
  Channels<T, K> own;
  own.first = static_cast<int>(blockIdx.x * block_threads + threadIdx.x) * Channels<T, K>::count;
  own.left = p.channels - own.first;
  const int first = static_cast<int>(blockIdx.y) * p.tile_tokens;
  let_next_kernel_start();
  if (own.left > 0) load_weights<T, K, Aligned>(p, own);
  wait_for_previous_kernel();

  const int tokens = p.span_begin[p.spans];
  if (first >= tokens) return;
  const int last = first + p.tile_tokens < tokens ? first + p.tile_tokens : tokens;
  int span = span_of(p.span_begin, p.spans, first);
  if (own.left <= 0) return;

  int begin = p.span_begin[span], end = p.span_begin[span + 1], token = first;
  if (begin < first) {
    const int after = begin + K - 1 < end ? begin + K - 1 : end;
    token = first > after ? first : after;
#pragma unroll
    for (int j = 0; j < K - 1; ++j) {
      const int left = token - (K - 1) + j;
      if (token >= end) continue;
      load_values<Aligned>(p.x + left * p.x_stride + own.first, own.left, own.taps[j]);
    }
  }
  for (;;) {
    if (token == end && token < last) {
      ++span;
      begin = end;
      end = p.span_begin[span + 1];
    }
    if (token == begin) {
      load_window<T, K, Aligned>(p, p.read_slot[span], own);
      store_window<T, K, Aligned>(p, p.write_slot[span], begin, end, own);
    }
    const int owned = begin >= first && begin + K - 1 > last ? begin + K - 1 : last;
    const int stop = owned < end ? owned : end;
    if (token >= stop) return;
    convolve_run<T, K, Aligned>(p, token, stop, own);
    token = stop;
  }
}

template <typename T, int K>
void run(Stream& stream, const CausalConv& op) {
  const std::int64_t tokens = op.x.dim(0), channels = op.x.dim(1);
  const unsigned blocks = pieces(channels, block_threads * vector_size<T>);
  const std::int64_t tile =
      std::clamp<std::int64_t>(tokens * blocks / blocks_wanted, 1, tile_tokens_max);
  const Params<T> params = {.x = op.x.as<T>(),
                            .y = op.y.as<T>(),
                            .windows = op.windows.as<T>(),
                            .weight = op.weight.as<float>(),
                            .bias = op.bias.as<float>(),
                            .span_begin = op.span_begin.as<std::int32_t>(),
                            .read_slot = op.read_slot.as<std::int32_t>(),
                            .write_slot = op.write_slot.as<std::int32_t>(),
                            .x_stride = op.x.row_stride,
                            .y_stride = op.y.row_stride,
                            .slot_stride = op.windows.row_stride,
                            .channels = static_cast<int>(channels),
                            .spans = static_cast<int>(op.read_slot.dim(0)),
                            .tile_tokens = static_cast<int>(tile)};
  const bool is_aligned =
      channels % vector_size<T> == 0 && is_vector_aligned(params.x, params.x_stride) &&
      is_vector_aligned(params.y, params.y_stride) &&
      is_vector_aligned(params.windows, params.slot_stride) && is_vector_aligned(params.weight, 0);
  launch(stream,
         {.blocks = dim3(blocks, pieces(tokens, tile)),
          .threads = block_threads,
          .starts_early = true},
         is_aligned ? causal_conv_kernel<T, K, true> : causal_conv_kernel<T, K, false>, params);
}

}  // namespace

void causal_conv(Stream& stream, const CausalConv& op) {
  if (op.x.dim(0) == 0 || op.x.dim(1) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    switch (op.weight.dim(1)) {
      case 2:
        return run<T, 2>(stream, op);
      case 3:
        return run<T, 3>(stream, op);
      default:
        return run<T, 4>(stream, op);
    }
  });
}

}  // namespace hyb::kernels::cuda
