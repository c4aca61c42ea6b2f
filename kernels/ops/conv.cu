#include <algorithm>
#include <cmath>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/conv_channels.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_threads = 128;
template <bool Gated>
constexpr int group = Gated ? 2 : 4;  ///< tokens whose loads are under way together
constexpr std::int64_t tile_tokens_max = 32;
constexpr std::int64_t blocks_wanted = 1024;  ///< some waves of a large card

template <typename T>
struct Params : ConvChannels<T> {
  int channels, spans, tile_tokens;
};

/// Holds what a thread knows of its vector of channels.
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

/// A thread's part of a token as it is in memory: what is not unpacked yet is not waited for.
struct PackedToken {
  uint4 x, before, after;
};

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

template <bool Aligned, bool Gated, typename T, int K>
__device__ __forceinline__ PackedToken load_token(const Params<T>& p, int token,
                                                  const Channels<T, K>& own) {
  const std::int64_t at = token * p.x_stride + own.first;
  PackedToken packed = {.x = load_packed<Aligned>(p.x + at, own.left), .before = {}, .after = {}};
  if constexpr (Gated) {
    packed.before = load_packed<Aligned>(p.before + at, own.left);
    packed.after = load_packed<Aligned>(p.after + at, own.left);
  }
  return packed;
}

/// Unpacks what enters the convolution.
template <bool Gated, typename T>
__device__ __forceinline__ void unpack_input(const PackedToken& packed,
                                             float (&x)[vector_size<T>]) {
  unpack(packed.x, x);
  if constexpr (Gated) {
    float gate[vector_size<T>];
    unpack(packed.before, gate);
#pragma unroll
    for (int c = 0; c < vector_size<T>; ++c) x[c] = to_float(rounded<T>(gate[c] * x[c]));
  }
}

template <bool Aligned, bool Gated, typename T, int K>
__device__ __forceinline__ void load_input(const Params<T>& p, int token, const Channels<T, K>& own,
                                           float (&x)[vector_size<T>]) {
  unpack_input<Gated, T>(load_token<Aligned, Gated>(p, token, own), x);
}

/// The last K-1 inputs of a span; the taps are what precedes its first token.
template <bool Aligned, bool Gated, typename T, int K>
__device__ __forceinline__ void store_window(const Params<T>& p, std::int64_t slot, int begin,
                                             int end, Channels<T, K> own) {
  constexpr int count = Channels<T, K>::count;
#pragma unroll
  for (int j = 0; j < K - 1; ++j) {
    const int token = end - (K - 1) + j;
    if (token < begin) continue;
    float x[count];
    load_input<Aligned, Gated>(p, token, own, x);
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
template <bool Aligned, bool Gated, typename T, int K>
__device__ __forceinline__ void convolve(const Params<T>& p, int token, const PackedToken& packed,
                                         Channels<T, K>& own) {
  constexpr int count = Channels<T, K>::count;
  float x[count], y[count];
  unpack_input<Gated, T>(packed, x);
#pragma unroll
  for (int c = 0; c < count; ++c) {
    float sum = own.bias[c];
#pragma unroll
    for (int j = 0; j < K - 1; ++j) sum = fmaf(own.weight[c][j], own.taps[j][c], sum);
    y[c] = fmaf(own.weight[c][K - 1], x[c], sum);
  }
  if constexpr (Gated) {
    float gate[count];
    unpack(packed.after, gate);
#pragma unroll
    for (int c = 0; c < count; ++c) y[c] = gate[c] * to_float(rounded<T>(y[c]));
  } else {
#pragma unroll
    for (int c = 0; c < count; ++c) y[c] = silu(y[c]);
  }
  move_on(x, own);
  store_values<Aligned>(p.y + token * p.y_stride + own.first, own.left, y);
}

/// Tokens token .. stop-1, all of one span.
template <bool Aligned, bool Gated, typename T, int K>
__device__ __forceinline__ void convolve_run(const Params<T>& p, int token, int stop,
                                             Channels<T, K>& own) {
  for (; token < stop; token += group<Gated>) {
    PackedToken packed[group<Gated>];
#pragma unroll
    for (int i = 0; i < group<Gated>; ++i) {
      packed[i] = load_token<Aligned, Gated>(p, token + i < stop ? token + i : token, own);
    }
#pragma unroll
    for (int i = 0; i < group<Gated>; ++i) {
      if (token + i >= stop) break;
      convolve<Aligned, Gated>(p, token + i, packed[i], own);
    }
  }
}

/// The first token of a span's chain where it is less than K-1 tokens before `token`, which is the
/// span's; else any that is not.
template <int K, typename T>
__device__ __forceinline__ int chain_of(const Params<T>& p, int index, SpanEntry span, int token) {
  while (span.continues_previous && span.first > token - (K - 1))
    span = span_at(p, --index, p.spans);
  return span.first;
}

/// grid (pieces of the channels, tiles of tokens): a thread owns neighbouring channels, 16 bytes of
/// a row, and walks the tile's tokens with the taps in registers. The first K-1 tokens of a chain
/// (of a span that is in none) belong to the tile of its very first one, which alone reads a
/// window: a slot may be read and written. The owner of a span's first token writes its window;
/// within a chain all else comes from x. Sums in the contract's order with one rounding per tap, as
/// mamba_step's, so that neither cuts nor tiles change a bit.
template <typename T, int K, bool Aligned, bool Gated>
__global__ void __launch_bounds__(block_threads, K > 4 ? 2 : 4) convolve_kernel(const Params<T> p) {
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
  int index = span_of(p.span_begin, p.spans, first);
  if (own.left <= 0) return;

  SpanEntry span = span_at(p, index, p.spans);
  const int chain = chain_of<K>(p, index, span, first);
  int token = first;
  if (chain < first) {
    token = first > chain + K - 1 ? first : chain + K - 1;
    while (token >= span.last && span.next_continues) span = span_at(p, ++index, p.spans);
    if (token > span.last) token = span.last;
#pragma unroll
    for (int j = 0; j < K - 1; ++j) {
      const int left = token - (K - 1) + j;
      if (token >= span.last) continue;
      load_input<Aligned, Gated>(p, left, own, own.taps[j]);
    }
  }
  int owned = chain >= first && chain + K - 1 > last ? chain + K - 1 : last;  // tokens before it
  for (;;) {
    const int stop = owned < span.last ? owned : span.last;
    if (token == span.first && token < stop) {
      if (!span.continues_previous) load_window<T, K, Aligned>(p, span.read_slot, own);
      if (span.write_slot >= 0) {
        store_window<Aligned, Gated>(p, span.write_slot, span.first, span.last, own);
      }
    }
    convolve_run<Aligned, Gated>(p, token, stop, own);
    if (stop < span.last || stop >= (span.next_continues ? owned : last)) return;
    token = stop;
    span = span_at(p, ++index, p.spans);
    if (!span.continues_previous) owned = token + K - 1 > last ? token + K - 1 : last;
  }
}

template <typename T, int K>
void run(Stream& stream, const ConvChannels<T>& job, std::int64_t tokens) {
  const std::int64_t channels = job.end;
  const unsigned blocks = pieces(channels, block_threads * vector_size<T>);
  const std::int64_t tile =
      std::clamp<std::int64_t>(tokens * blocks / blocks_wanted, 1, tile_tokens_max);
  const Params<T> params = {job, static_cast<int>(channels), static_cast<int>(job.spans),
                            static_cast<int>(tile)};
  const bool is_aligned =
      channels % vector_size<T> == 0 && is_vector_aligned(job.x, job.x_stride) &&
      is_vector_aligned(job.before, 0) && is_vector_aligned(job.after, 0) &&
      is_vector_aligned(job.y, job.y_stride) && is_vector_aligned(job.windows, job.slot_stride) &&
      is_vector_aligned(job.weight, 0);
  const auto start = [&](void (*aligned)(Params<T>), void (*any)(Params<T>)) {
    launch(stream, {.blocks = dim3(blocks, pieces(tokens, tile)), .threads = block_threads},
           is_aligned ? aligned : any, params);
  };
  if constexpr (K <= static_cast<int>(conv_width_max)) {
    if (job.before == nullptr) {
      return start(convolve_kernel<T, K, true, false>, convolve_kernel<T, K, false, false>);
    }
  }
  start(convolve_kernel<T, K, true, true>, convolve_kernel<T, K, false, true>);
}

template <typename Op>
void run_op(Stream& stream, const Op& op) {
  const std::int64_t tokens = op.x.dim(0);
  if (tokens == 0 || op.y.dim(1) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    const ConvChannels<T> job = channels_of<T>(op);
    switch (job.width) {
      case 2:
        return run<T, 2>(stream, job, tokens);
      case 3:
        return run<T, 3>(stream, job, tokens);
      case 4:
        return run<T, 4>(stream, job, tokens);
      default:
        return run<T, 7>(stream, job, tokens);
    }
  });
}

}  // namespace

void causal_conv(Stream& stream, const CausalConv& op) { run_op(stream, op); }
void gated_conv(Stream& stream, const GatedConv& op) { run_op(stream, op); }

}  // namespace hyb::kernels::cuda
