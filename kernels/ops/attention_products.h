#pragma once

#include "kernels/simd/math.h"

/// The two small matrix products of attention over one tile of keys, as register tiles of R rows by
/// some vectors. Every element is summed over units in order, whatever R is.
namespace hyb::kernels {
namespace {

constexpr int segment_keys = 16;  ///< so many neighbouring keys lie in one page
constexpr int tile_vectors = 4;
constexpr int tile_keys = tile_vectors * lanes;
constexpr int tile_segments = tile_keys / segment_keys;
constexpr int rows_at_once = registers == 32 ? 6 : 2;
constexpr std::int64_t tile_rows_max = 32;

template <typename T>
constexpr int unit_size = sizeof(T) == 4 ? 1 : 2;

/// Where a tile's keys and values begin, segment by segment; in units of T (unit_size<T>).
template <typename T>
struct TilePages {
  const T* keys[tile_segments];
  const T* values[tile_segments];
  std::int64_t key_stride;    ///< from unit to unit of dimensions
  std::int64_t value_stride;  ///< from unit to unit of positions
};

template <typename T>
using Weights = T[tile_rows_max][tile_keys];
using Scores = float[tile_rows_max][tile_keys];

/// scores[r] = scale * q[r] . key, for `R` rows and all keys of the tile.
template <int R, typename T>
void score(const T* const* q, const TilePages<T>& tile, std::int64_t head_dim, float scale,
           float (*scores)[tile_keys]) {
  Vec sums[R][tile_vectors];
  for (auto& row : sums) {
    for (Vec& each : row) each = zeros();
  }
  constexpr int size = unit_size<T>;
  for (std::int64_t u = 0; u < head_dim / size; ++u) {
    Unit<T> keys[tile_vectors];
    for (int v = 0; v < tile_vectors; ++v) {
      const int key = v * lanes;
      keys[v] = load_units(tile.keys[key / segment_keys] + u * tile.key_stride +
                           key % segment_keys * size);
    }
    for (int r = 0; r < R; ++r) {
      const Unit<T> x = broadcast_unit(q[r] + u * size);
      for (int v = 0; v < tile_vectors; ++v) sums[r][v] = dot(sums[r][v], x, keys[v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < tile_vectors; ++v) {
      store(scores[r] + v * lanes, sums[r][v] * broadcast(scale));
    }
  }
}

/// sums[r][d] += weight * value over the first `keys` keys of the tile, for V vectors from
/// dimension d on. A pair with one key only counts its first.
template <int R, int V, typename T, typename Lanes>
void add_values(const T (*weights)[tile_keys], const TilePages<T>& tile, std::int64_t d, int keys,
                Lanes part, float* sums, std::int64_t record) {
  constexpr int size = unit_size<T>;
  Vec acc[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) acc[r][v] = load(sums + r * record + d + v * lanes, part);
  }
  const auto add = [&](int key, auto values_of) {
    const T* const at =
        tile.values[key / segment_keys] + key % segment_keys / size * tile.value_stride + d * size;
    Unit<T> values[V];
    for (int v = 0; v < V; ++v) values[v] = values_of(load_units(at + v * lanes * size, part));
    for (int r = 0; r < R; ++r) {
      const Unit<T> weight = broadcast_unit(weights[r] + key);
      for (int v = 0; v < V; ++v) acc[r][v] = dot(acc[r][v], weight, values[v]);
    }
  };
  int key = 0;
  for (; key + size <= keys; key += size) add(key, [](Unit<T> values) { return values; });
  if constexpr (size == 2) {
    if (key < keys) add(key, [](Unit<T> values) { return first_of_pairs(values); });
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) store(sums + r * record + d + v * lanes, acc[r][v], part);
  }
}

/// Calls body.operator()<R>(first row) so that R rows at a time cover begin .. end-1.
template <int R, typename Body>
void in_rows(std::int64_t begin, std::int64_t end, Body&& body) {
  for (; begin + R <= end; begin += R) body.template operator()<R>(begin);
  if constexpr (R > 1) in_rows<R - 1>(begin, end, body);
}

template <typename T>
void score_rows(const T* const* q, const TilePages<T>& tile, std::int64_t head_dim, float scale,
                std::int64_t begin, std::int64_t end, Scores& scores) {
  in_rows<rows_at_once>(begin, end, [&]<int R>(std::int64_t row) {
    score<R>(q + row, tile, head_dim, scale, scores + row);
  });
}

/// Rows begin .. end-1 all see the first `keys` keys of the tile.
template <typename T>
void add_rows(const Weights<T>& weights, const TilePages<T>& tile, std::int64_t head_dim, int keys,
              std::int64_t begin, std::int64_t end, float* records, std::int64_t record) {
  in_rows<rows_at_once>(begin, end, [&]<int R>(std::int64_t row) {
    std::int64_t d = 0;
    float* const sums = records + row * record;
    for (; d + tile_vectors * lanes <= head_dim; d += tile_vectors * lanes) {
      add_values<R, tile_vectors>(weights + row, tile, d, keys, Full{}, sums, record);
    }
    for (; d < head_dim; d += lanes) {
      add_values<R, 1>(weights + row, tile, d, keys, Part(head_dim - d), sums, record);
    }
  });
}

}  // namespace
}  // namespace hyb::kernels
