#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/linear/panel_routes.h"

namespace hyb::kernels {
namespace {

inline __m256 even_of(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
inline __m256 odd_of(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
}

template <int R, int C>
struct Sums {
  __m256 at[R][C];
};

template <int R, int C>
inline __attribute__((always_inline)) void load(Sums<R, C>& sums, const float* from, bool first) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      sums.at[r][c] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(from + r * 64 + c * 8);
    }
  }
}

template <int R, int C>
inline __attribute__((always_inline)) void store(const Sums<R, C>& sums, float* to) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) _mm256_storeu_ps(to + r * 64 + c * 8, sums.at[r][c]);
  }
}

/// R rows times 8*C outputs of the panel: R*C sums of the 16 registers. The products of a pair
/// enter one after the other: the order of f32 panels.
template <int R, int C>
void strip_bf16(const PanelTile& tile, std::int64_t row, int column) {
  Sums<R, C> sums;
  load<R, C>(sums, tile.sums + row * 64 + column, tile.first);
  const std::byte* rows[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) rows[r] = static_cast<const std::byte*>(tile.rows[row + r]);
  const std::byte* word = static_cast<const std::byte*>(tile.panel) + column * 4;

  const auto step = [&](auto pair_of_row) __attribute__((always_inline)) {
    __m256i x[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) x[r] = _mm256_set1_epi32(pair_of_row(rows[r]));
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(word + c * 32));
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sums.at[r][c] = _mm256_fmadd_ps(even_of(x[r]), even_of(w), sums.at[r][c]);
        sums.at[r][c] = _mm256_fmadd_ps(odd_of(x[r]), odd_of(w), sums.at[r][c]);
      }
    }
  };
  for (std::int64_t pair = 0; pair < tile.columns / 2; ++pair, word += 256) {
    step([pair](const std::byte* x) __attribute__((always_inline)) {
      int both;
      __builtin_memcpy(&both, x + pair * 4, sizeof(both));
      return both;
    });
  }
  if (tile.columns % 2 != 0) {  // what stands beside the last element is not ours
    step([&](const std::byte* x) __attribute__((always_inline)) {
      std::uint16_t last;
      __builtin_memcpy(&last, x + (tile.columns - 1) * 2, sizeof(last));
      return static_cast<int>(last);
    });
  }
  store<R, C>(sums, tile.sums + row * 64 + column);
}

template <int R, int C>
void strip_f32(const PanelTile& tile, std::int64_t row, int column) {
  Sums<R, C> sums;
  load<R, C>(sums, tile.sums + row * 64 + column, tile.first);
  const float* rows[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) rows[r] = static_cast<const float*>(tile.rows[row + r]);
  const float* word = static_cast<const float*>(tile.panel) + column;
  for (std::int64_t k = 0; k < tile.columns; ++k, word += 64) {
    __m256 x[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) x[r] = _mm256_set1_ps(rows[r][k]);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const __m256 w = _mm256_loadu_ps(word + c * 8);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums.at[r][c] = _mm256_fmadd_ps(x[r], w, sums.at[r][c]);
    }
  }
  store<R, C>(sums, tile.sums + row * 64 + column);
}

template <bool bf16_panels, int R, int C>
void strips(const PanelTile& tile, std::int64_t row) {
  for (int column = 0; column < 64; column += 8 * C) {
    if constexpr (bf16_panels) {
      strip_bf16<R, C>(tile, row, column);
    } else {
      strip_f32<R, C>(tile, row, column);
    }
  }
}

/// Eight independent sums hide the latency of FMA; more do not fit beside the operands.
template <bool bf16_panels>
void rows_of_tile(const PanelTile& tile) {
  std::int64_t row = 0;
  for (; tile.count - row >= 4; row += 4) strips<bf16_panels, 4, 2>(tile, row);
  if (tile.count - row == 3) return strips<bf16_panels, 3, 2>(tile, row);
  if (tile.count - row == 2) return strips<bf16_panels, 2, 4>(tile, row);
  if (tile.count - row == 1) return strips<bf16_panels, 1, 8>(tile, row);
}

/// The first `columns` (at most 8) lanes.
inline __m256i lanes(std::int64_t columns) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(columns > 8 ? 8 : columns)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/// To nearest, ties to even; NaN stays NaN. Eight bf16 in the low halves of the 32-bit lanes.
inline __m256i rounded(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i tie = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(tie, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, is_nan), 16);
}

void write_bf16(const PanelRow& row, int column, __m256 scaled) {
  std::uint16_t* const y = static_cast<std::uint16_t*>(row.y) + column;
  const std::int64_t left = row.columns - column < 8 ? row.columns - column : 8;
  alignas(16) std::uint16_t old[8] = {};
  if (row.add) {
    __builtin_memcpy(old, y, static_cast<std::size_t>(left) * 2);
    const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(old));
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
    scaled = _mm256_add_ps(_mm256_castsi256_ps(wide), scaled);
  }
  const __m256i bits = rounded(scaled);
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  _mm_store_si128(reinterpret_cast<__m128i*>(old), packed);
  __builtin_memcpy(y, old, static_cast<std::size_t>(left) * 2);
}

void write_f32(const PanelRow& row, int column, __m256 scaled) {
  float* const y = static_cast<float*>(row.y) + column;
  const __m256i mask = lanes(row.columns - column);
  if (row.add) scaled = _mm256_add_ps(_mm256_maskload_ps(y, mask), scaled);
  _mm256_maskstore_ps(y, mask, scaled);
}

}  // namespace

void panel_tile_bf16_avx2(const PanelTile& tile) { rows_of_tile<true>(tile); }
void panel_tile_f32_avx2(const PanelTile& tile) { rows_of_tile<false>(tile); }

void panel_row_avx2(const PanelRow& row) {
  for (int column = 0; column < row.columns; column += 8) {
    const __m256 scaled =
        _mm256_mul_ps(_mm256_set1_ps(row.scale), _mm256_loadu_ps(row.sums + column));
    if (row.y_is_bf16) {
      write_bf16(row, column, scaled);
    } else {
      write_f32(row, column, scaled);
    }
  }
}

}  // namespace hyb::kernels
