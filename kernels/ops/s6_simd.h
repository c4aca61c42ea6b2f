#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

/// As in ssd_simd.h, a channel's state stays in registers over a chunk of tokens, and chunks may
/// end anywhere. Every element has its own decay, so the exponentials take most of the time.
namespace hyb::kernels {
namespace s6_simd {
namespace {

constexpr int chunk_tokens = 16;
constexpr int columns_max = 256;

/// B and C of a chunk as floats: whole vectors, zeros after the last column.
struct ChunkColumns {
  alignas(64) float b[chunk_tokens * columns_max];
  alignas(64) float c[chunk_tokens * columns_max];
  std::int64_t stride;
};

/// Holds, of a vector of channels: their steps and inputs, and per channel the lanes whose sum is S
/// . C.
struct ChunkChannels {
  alignas(64) float dt[chunk_tokens][lanes];
  alignas(64) float input[chunk_tokens][lanes];
  Vec parts[chunk_tokens][lanes];
};

template <typename T, typename S>
void load_columns(const S6Share<T, S>& job, std::int64_t first, int tokens, ChunkColumns& out) {
  out.stride = (job.columns + lanes - 1) / lanes * lanes;
  for (int t = 0; t < tokens; ++t) {
    const T* const b = job.b + (first + t) * job.b_stride;
    const T* const c = job.c + (first + t) * job.c_stride;
    each_vector(job.columns, [&](std::int64_t n, auto part) {
      store(out.b + t * out.stride + n, load(b + n, part));
      store(out.c + t * out.stride + n, load(c + n, part));
    });
  }
}

/// V vectors of one channel's state, from column `column` on, over a chunk.
template <int V, bool Whole, typename S>
void run_strip(const float* rate, const S* from, S* to, std::int64_t column, std::int64_t left,
               const ChunkColumns& columns, int tokens, int channel, ChunkChannels& channels) {
  Vec s[V], a[V];
  const auto each = [&](auto&& body) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      if constexpr (Whole) {
        body(v, Full{});
      } else {
        body(v, Part(left - v * lanes));
      }
    }
  };
  each([&](int v, auto part) {
    a[v] = load(rate + v * lanes, part);
    s[v] = from == nullptr ? zeros() : load(from + v * lanes, part);
  });
  for (int t = 0; t < tokens; ++t) {
    const float* const b = columns.b + t * columns.stride + column;
    const float* const c = columns.c + t * columns.stride + column;
    const Vec dt = broadcast(channels.dt[t][channel]);
    const Vec input = broadcast(channels.input[t][channel]);
    Vec sum = column == 0 ? zeros() : channels.parts[t][channel];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      s[v] = as_stored<S>(fma(s[v], exp(dt * a[v]), input * load(b + v * lanes)));
      sum = fma(s[v], load(c + v * lanes), sum);
    }
    channels.parts[t][channel] = sum;
  }
  if (to != nullptr) each([&](int v, auto part) { store(to + v * lanes, s[v], part); });
}

/// All columns of one channel.
template <typename S>
void run_channel(const float* rate, const S* from, S* to, std::int64_t count,
                 const ChunkColumns& columns, int tokens, int channel, ChunkChannels& channels) {
  std::int64_t n = 0;
  const auto run = [&]<int V, bool Whole>() {
    run_strip<V, Whole>(rate + n, from == nullptr ? nullptr : from + n,
                        to == nullptr ? nullptr : to + n, n, count - n, columns, tokens, channel,
                        channels);
    n += V * lanes;
  };
  while (n + 2 * lanes <= count) run.template operator()<2, true>();
  if (n + lanes <= count) run.template operator()<1, true>();
  if (n < count) run.template operator()<1, false>();
}

/// A vector of channels over a chunk, from the state to y.
template <typename T, typename S>
void run_channels(const S6Share<T, S>& job, std::int64_t first, int tokens, std::int64_t channel,
                  const S* from, S* to, const ChunkColumns& columns) {
  ChunkChannels channels;
  const std::int64_t left = job.channels - channel;
  const int count = static_cast<int>(left < lanes ? left : lanes);
  const Part part(left);
  const T* const x = job.x + first * job.x_stride + channel;
  const Vec bias = load(job.dt_bias + channel, part);
  for (int t = 0; t < tokens; ++t) {
    const T* const raw = job.dt + (first + t) * job.dt_stride + channel;
    const Vec dt = softplus(load(raw, part) + bias);
    store(channels.dt[t], dt);
    store(channels.input[t], dt * load(x + t * job.x_stride, part));
  }
  for (int i = 0; i < count; ++i) {
    const std::int64_t at = (channel + i) * job.columns;
    run_channel(job.rate + at, from == nullptr ? nullptr : from + at,
                to == nullptr ? nullptr : to + at, job.columns, columns, tokens, i, channels);
  }
  const Vec d = load(job.d + channel, part);
  T* const y = job.y + first * job.y_stride + channel;
  for (int t = 0; t < tokens; ++t) {
    const Vec sums = sums_of(channels.parts[t]);
    store(y + t * job.y_stride, fma(d, load(x + t * job.x_stride, part), sums), part);
  }
}

template <typename T, typename S>
void run_share(const S6Share<T, S>& job) {
  const std::int64_t items = (job.channels + lanes - 1) / lanes;
  const std::int64_t begin = items * job.thread / job.threads;
  const std::int64_t end = items * (job.thread + 1) / job.threads;
  if (begin == end) return;
  ChunkColumns columns;
  for (std::int64_t span = 0; span < job.spans; ++span) {
    const std::int32_t slot = job.read_slot[span];
    const S* from = slot < 0 ? nullptr : job.state + slot * job.slot_stride;
    const std::int32_t into = job.write_slot[span];  // none: all tokens are one chunk
    S* const to = into < 0 ? nullptr : job.state + into * job.slot_stride;
    const std::int64_t last = job.span_begin[span + 1];
    for (std::int64_t t = job.span_begin[span]; t < last; t += chunk_tokens, from = to) {
      const int tokens = static_cast<int>(last - t < chunk_tokens ? last - t : chunk_tokens);
      load_columns(job, t, tokens, columns);
      for (std::int64_t item = begin; item < end; ++item) {
        run_channels(job, t, tokens, item * lanes, from, to, columns);
      }
    }
  }
}

}  // namespace
}  // namespace s6_simd

template <typename T, typename S>
struct VectorRoute<vector_isa, S6Share<T, S>> {
  static void run(const S6Share<T, S>& job) { s6_simd::run_share(job); }
};
template struct VectorRoute<vector_isa, S6Share<float, float>>;
template struct VectorRoute<vector_isa, S6Share<float, bf16>>;
template struct VectorRoute<vector_isa, S6Share<bf16, float>>;
template struct VectorRoute<vector_isa, S6Share<bf16, bf16>>;

}  // namespace hyb::kernels
