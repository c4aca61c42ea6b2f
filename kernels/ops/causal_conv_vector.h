#pragma once

#include "kernels/ops/causal_conv_routes.h"
#include "kernels/simd/math.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t tile_channels = 128;
constexpr int width_max = 4;

/// Weights and bias of a tile, tap by tap, so that lanes are channels.
struct ConvTile {
  alignas(64) float taps[width_max][tile_channels];
  alignas(64) float bias[tile_channels];
  std::int64_t begin, channels;
};

/// The inputs around a span's begin as floats: K-1 of its left neighbours, then its first K-1.
struct ConvEdge {
  alignas(64) float rows[2 * (width_max - 1)][tile_channels];
};

template <int K, typename T>
void load_tile(const ConvChannels<T>& job, std::int64_t begin, ConvTile& tile) {
  tile.begin = begin;
  tile.channels = job.end - begin < tile_channels ? job.end - begin : tile_channels;
  const float* const weight = job.weight + begin * K;
  for (std::int64_t c = 0; c < tile.channels; ++c) {
    for (int j = 0; j < K; ++j) tile.taps[j][c] = weight[c * K + j];
  }
  for (std::int64_t c = 0; c < tile.channels; ++c) {
    tile.bias[c] = job.bias == nullptr ? 0.0F : job.bias[begin + c];
  }
}

/// One channel vector of one token from its K inputs, oldest first.
template <int K, typename Input>
[[gnu::always_inline]] inline Vec tap(const ConvTile& tile, std::int64_t c, Input input) {
  Vec sum = load(tile.bias + c);
  for (int j = 0; j < K; ++j) sum = fma(load(tile.taps[j] + c), input(j), sum);
  return silu(sum);
}

template <int K, typename T>
void load_window(const ConvChannels<T>& job, const ConvTile& tile, std::int64_t span,
                 ConvEdge& edge) {
  constexpr int history = K - 1;
  const std::int32_t slot = job.read_slot[span];
  if (slot < 0) {
    for (int j = 0; j < history; ++j) {
      for (std::int64_t c = 0; c < tile.channels; ++c) edge.rows[j][c] = 0.0F;
    }
    return;
  }
  const T* const window = job.windows + slot * job.slot_stride + tile.begin * history;
  for (std::int64_t c = 0; c < tile.channels; ++c) {
    for (int j = 0; j < history; ++j) edge.rows[j][c] = scalar(window[c * history + j]);
  }
}

/// The last K-1 inputs: of a short span all are in `edge`, of a longer one some are.
template <int K, typename T>
void store_window(const ConvChannels<T>& job, const ConvTile& tile, std::int64_t span,
                  ConvEdge& edge) {
  constexpr int history = K - 1;
  const std::int64_t begin = job.span_begin[span], end = job.span_begin[span + 1];
  int first = static_cast<int>(end - begin);
  if (first > history) {
    first = 0;
    for (int j = 0; j < history; ++j) {
      const T* const x = job.x + (end - history + j) * job.x_stride + tile.begin;
      each_vector(tile.channels, [&](std::int64_t c, auto part) {
        store(edge.rows[j] + c, load(x + c, part), part);
      });
    }
  }
  T* const window = job.windows + job.write_slot[span] * job.slot_stride + tile.begin * history;
  for (std::int64_t c = 0; c < tile.channels; ++c) {
    for (int j = 0; j < history; ++j) unscalar(edge.rows[first + j][c], window[c * history + j]);
  }
}

template <int K, typename T>
void convolve_span(const ConvChannels<T>& job, const ConvTile& tile, std::int64_t span) {
  constexpr int history = K - 1;
  const std::int64_t begin = job.span_begin[span], end = job.span_begin[span + 1];
  ConvEdge edge;
  load_window<K>(job, tile, span, edge);
  std::int64_t t = begin;
  for (; t < end && t < begin + history; ++t) {
    const int at = static_cast<int>(t - begin);
    const T* const x = job.x + t * job.x_stride + tile.begin;
    T* const y = job.y + t * job.y_stride + tile.begin;
    each_vector(tile.channels, [&](std::int64_t c, auto part) {
      store(edge.rows[history + at] + c, load(x + c, part), part);
      store(y + c, tap<K>(tile, c, [&](int j) { return load(edge.rows[at + j] + c, part); }), part);
    });
  }
  for (; t < end; ++t) {
    const T* const x = job.x + (t - history) * job.x_stride + tile.begin;
    T* const y = job.y + t * job.y_stride + tile.begin;
    each_vector(tile.channels, [&](std::int64_t c, auto part) {
      store(y + c, tap<K>(tile, c, [&](int j) { return load(x + j * job.x_stride + c, part); }),
            part);
    });
  }
  store_window<K>(job, tile, span, edge);
}

template <int K, typename T>
void convolve_taps(const ConvChannels<T>& job) {
  ConvTile tile;
  for (std::int64_t begin = job.begin; begin < job.end; begin += tile_channels) {
    load_tile<K>(job, begin, tile);
    for (std::int64_t span = 0; span < job.spans; ++span) convolve_span<K>(job, tile, span);
  }
}

template <typename T>
void convolve(const ConvChannels<T>& job) {
  if (job.width == 2) convolve_taps<2>(job);
  if (job.width == 3) convolve_taps<3>(job);
  if (job.width == 4) convolve_taps<4>(job);
}

}  // namespace
}  // namespace hyb::kernels
