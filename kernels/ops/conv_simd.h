#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t tile_channels = 128;
constexpr int width_max = static_cast<int>(short_conv_width_max);

/// Weights and bias of a tile, tap by tap, so that lanes are channels.
struct ConvTile {
  alignas(64) float taps[width_max][tile_channels];
  alignas(64) float bias[tile_channels];
  std::int64_t begin, channels;
};

/// The inputs around a span's start as floats: K-1 of its left neighbours, then its first K-1.
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

/// A tile's columns. A copy, since the compiler takes any store for one to the job.
template <typename T>
struct ConvRows {
  ConvRows(const ConvChannels<T>& job, std::int64_t begin)
      : x(job.x + begin),
        before(job.before == nullptr ? nullptr : job.before + begin),
        after(job.before == nullptr ? nullptr : job.after + begin),
        y(job.y + begin),
        x_stride(job.x_stride),
        y_stride(job.y_stride) {}
  const T *x, *before, *after;
  T* y;
  std::int64_t x_stride, y_stride;
};

/// Returns what enters the convolution, of token t from channel c on.
template <bool Gated, typename T, typename Lanes>
[[gnu::always_inline]] inline Vec input_of(const ConvRows<T>& rows, std::int64_t t, std::int64_t c,
                                           Lanes part) {
  const Vec x = load(rows.x + t * rows.x_stride + c, part);
  if constexpr (!Gated) return x;
  return as_stored<T>(load(rows.before + t * rows.x_stride + c, part) * x);
}

/// Writes one channel vector of y from its K inputs, oldest first.
template <int K, bool Gated, typename T, typename Lanes, typename Input>
[[gnu::always_inline]] inline void write_output(const ConvRows<T>& rows, const ConvTile& tile,
                                                std::int64_t t, std::int64_t c, Lanes part,
                                                Input input) {
  Vec sum = load(tile.bias + c);
  for (int j = 0; j < K; ++j) sum = fma(load(tile.taps[j] + c), input(j), sum);
  if constexpr (Gated) {
    sum = as_stored<T>(sum) * load(rows.after + t * rows.x_stride + c, part);
  } else {
    sum = silu(sum);
  }
  store(rows.y + t * rows.y_stride + c, sum, part);
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
template <int K, bool Gated, typename T>
void store_window(const ConvChannels<T>& job, const ConvTile& tile, std::int64_t span,
                  ConvEdge& edge) {
  constexpr int history = K - 1;
  const std::int64_t begin = job.span_begin[span], end = job.span_begin[span + 1];
  int first = static_cast<int>(end - begin);
  if (first > history) {
    first = 0;
    const ConvRows<T> rows(job, tile.begin);
    for (int j = 0; j < history; ++j) {
      each_vector(tile.channels, [&](std::int64_t c, auto part) {
        store(edge.rows[j] + c, input_of<Gated>(rows, end - history + j, c, part), part);
      });
    }
  }
  T* const window = job.windows + job.write_slot[span] * job.slot_stride + tile.begin * history;
  for (std::int64_t c = 0; c < tile.channels; ++c) {
    for (int j = 0; j < history; ++j) unscalar(edge.rows[first + j][c], window[c * history + j]);
  }
}

template <int K, bool Gated, typename T>
void convolve_span(const ConvChannels<T>& job, const ConvTile& tile, std::int64_t span) {
  constexpr int history = K - 1;
  const std::int64_t begin = job.span_begin[span], end = job.span_begin[span + 1];
  ConvEdge edge;
  load_window<K>(job, tile, span, edge);
  const ConvRows<T> rows(job, tile.begin);
  std::int64_t t = begin;
  for (; t < end && t < begin + history; ++t) {
    const int at = static_cast<int>(t - begin);
    each_vector(tile.channels, [&](std::int64_t c, auto part) {
      store(edge.rows[history + at] + c, input_of<Gated>(rows, t, c, part), part);
      write_output<K, Gated>(rows, tile, t, c, part,
                             [&](int j) { return load(edge.rows[at + j] + c, part); });
    });
  }
  for (; t < end; ++t) {
    each_vector(tile.channels, [&](std::int64_t c, auto part) {
      write_output<K, Gated>(rows, tile, t, c, part, [&](int j) {
        return input_of<Gated>(rows, t - history + j, c, part);
      });
    });
  }
  if (job.write_slot[span] >= 0) store_window<K, Gated>(job, tile, span, edge);
}

template <int K, bool Gated, typename T>
void convolve_taps(const ConvChannels<T>& job) {
  ConvTile tile;
  for (std::int64_t begin = job.begin; begin < job.end; begin += tile_channels) {
    load_tile<K>(job, begin, tile);
    for (std::int64_t span = 0; span < job.spans; ++span) convolve_span<K, Gated>(job, tile, span);
  }
}

template <bool Gated, typename T>
void convolve(const ConvChannels<T>& job) {
  if (job.width == 2) convolve_taps<2, Gated>(job);
  if (job.width == 3) convolve_taps<3, Gated>(job);
  if (job.width == 4) convolve_taps<4, Gated>(job);
  if constexpr (Gated) {
    if (job.width == 7) convolve_taps<7, Gated>(job);
  }
}

template <typename T>
void convolve(const ConvChannels<T>& job) {
  if (job.before != nullptr) return convolve<true>(job);
  convolve<false>(job);
}

}  // namespace

template <typename T>
struct VectorRoute<vector_isa, ConvChannels<T>> {
  static void run(const ConvChannels<T>& job) { convolve(job); }
};
template struct VectorRoute<vector_isa, ConvChannels<float>>;
template struct VectorRoute<vector_isa, ConvChannels<bf16>>;

}  // namespace hyb::kernels
