#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/linear/panel_tiles.h"
#include "kernels/simd/avx512.h"

namespace hyb::kernels {
namespace {

template <int R>
struct Sums {
  __m512 at[R][4];
};

template <int R>
inline __attribute__((always_inline)) void load(Sums<R>& sums, const PanelTile& tile) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      sums.at[r][c] =
          tile.first ? _mm512_setzero_ps() : _mm512_loadu_ps(tile.sums + r * 64 + c * 16);
    }
  }
}

template <int R>
inline __attribute__((always_inline)) void store(const Sums<R>& sums, const PanelTile& tile) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) _mm512_storeu_ps(tile.sums + r * 64 + c * 16, sums.at[r][c]);
  }
}

/// Prefetches what comes next while the sums keep the arithmetic busy.
class Prefetcher {
 public:
  explicit Prefetcher(const PanelTile& tile)
      : next_(static_cast<const char*>(tile.prefetch)), lines_(tile.prefetch_lines) {}

  void run() {
    for (std::int64_t i = 0; i < lines_; ++i) _mm_prefetch(next_ + i * 64, _MM_HINT_T0);
    next_ += lines_ * 64;
  }

 private:
  const char* next_;
  std::int64_t lines_;
};

/// The 24 sums of a 6 x 64 tile, 4 words of the panel and a broadcast fill the 32 registers; two
/// vdpbf16ps start in every cycle (measured: 96 % of the peak of Zen 5).
template <int R>
void tile_bf16(const PanelTile& tile) {
  Sums<R> sums;
  Prefetcher prefetcher(tile);
  load<R>(sums, tile);
  const std::byte* rows[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) rows[r] = static_cast<const std::byte*>(tile.rows[r]);
  const std::byte* word = static_cast<const std::byte*>(tile.panel);

  const auto step = [&](auto pair_of_row) __attribute__((always_inline)) {
    __m512i w[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) w[c] = _mm512_loadu_si512(word + c * 64);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i x = _mm512_set1_epi32(pair_of_row(rows[r]));
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        sums.at[r][c] = _mm512_dpbf16_ps(sums.at[r][c], reinterpret_cast<__m512bh>(w[c]),
                                         reinterpret_cast<__m512bh>(x));
      }
    }
  };
  for (std::int64_t pair = 0; pair < tile.columns / 2; ++pair) {
    prefetcher.run();
    step([pair](const std::byte* row) __attribute__((always_inline)) {
      int both;
      __builtin_memcpy(&both, row + pair * 4, sizeof(both));
      return both;
    });
    word += 256;
  }
  if (tile.columns % 2 != 0) {  // what follows the last element is not ours
    step([&](const std::byte* row) __attribute__((always_inline)) {
      std::uint16_t last;
      __builtin_memcpy(&last, row + (tile.columns - 1) * 2, sizeof(last));
      return static_cast<int>(last);
    });
  }
  store<R>(sums, tile);
}

/// Sixteen outputs of a column of a panel that is multiplied with rows of f32.
struct F32Column {
  static constexpr std::int64_t bytes = 256;
  static __m512 at(const std::byte* column, int c) { return _mm512_loadu_ps(column + c * 64); }
};
struct F16Column {
  static constexpr std::int64_t bytes = 128;
  static __m512 at(const std::byte* column, int c) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(column + c * 32)));
  }
};

template <typename Column, int R>
void tile_f32(const PanelTile& tile) {
  constexpr std::int64_t line_columns = 256 / Column::bytes;
  Sums<R> sums;
  Prefetcher prefetcher(tile);
  load<R>(sums, tile);
  const float* rows[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) rows[r] = static_cast<const float*>(tile.rows[r]);
  const std::byte* column = static_cast<const std::byte*>(tile.panel);
  const auto step = [&](std::int64_t k) __attribute__((always_inline)) {
    __m512 w[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) w[c] = Column::at(column, c);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_set1_ps(rows[r][k]);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) sums.at[r][c] = _mm512_fmadd_ps(x, w[c], sums.at[r][c]);
    }
    column += Column::bytes;
  };
  std::int64_t k = 0;
  for (; k + line_columns <= tile.columns; k += line_columns) {
    prefetcher.run();
#pragma GCC unroll 2
    for (std::int64_t i = 0; i < line_columns; ++i) step(k + i);
  }
  if (k < tile.columns) step(k);
  store<R>(sums, tile);
}

using Route = void (*)(const PanelTile&);
constexpr Route bf16_routes[] = {tile_bf16<1>, tile_bf16<2>, tile_bf16<3>,
                                 tile_bf16<4>, tile_bf16<5>, tile_bf16<6>};
template <typename Column>
constexpr Route f32_routes[] = {tile_f32<Column, 1>, tile_f32<Column, 2>, tile_f32<Column, 3>,
                                tile_f32<Column, 4>, tile_f32<Column, 5>, tile_f32<Column, 6>};

void write_f32(const PanelRow& row, int column, __mmask16 mask, __m512 scaled) {
  float* const y = static_cast<float*>(row.y) + column;
  if (row.add) scaled = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), scaled);
  _mm512_mask_storeu_ps(y, mask, scaled);
}

void write_bf16(const PanelRow& row, int column, __mmask16 mask, __m512 scaled) {
  std::uint16_t* const y = static_cast<std::uint16_t*>(row.y) + column;
  if (row.add) {
    const __m512i old = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, y));
    scaled = _mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(old, 16)), scaled);
  }
  _mm256_mask_storeu_epi16(y, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(scaled)));
}

}  // namespace

void panel_tile_bf16_avx512(const PanelTile& tile) { bf16_routes[tile.count - 1](tile); }
void panel_tile_f32_avx512(const PanelTile& tile) { f32_routes<F32Column>[tile.count - 1](tile); }
void panel_tile_f16_avx512(const PanelTile& tile) { f32_routes<F16Column>[tile.count - 1](tile); }

void panel_row_avx512(const PanelRow& row) {
  for (int column = 0; column < row.columns; column += 16) {
    const std::int64_t left = row.columns - column;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffffU : (1U << left) - 1U);
    __m512 sum = _mm512_loadu_ps(row.sums + column);
    if (row.bias != nullptr) {
      sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, row.bias + column));
    }
    const __m512 scaled = _mm512_mul_ps(_mm512_set1_ps(row.scale), sum);
    if (row.y_is_bf16) {
      write_bf16(row, column, mask, scaled);
    } else {
      write_f32(row, column, mask, scaled);
    }
  }
}

namespace {

template <int R>
struct CodedSums {
  __m512 at[R][4];
};

template <int R>
inline __attribute__((always_inline)) void clear(CodedSums<R>& sums) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sums.at[r][c] = _mm512_setzero_ps();
  }
}

/// Sixteen powers of two of E8M0.
inline __m512 e8m0_scales(const std::byte* scales) {
  const __m512i exponents =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  const __m512i powers =
      _mm512_max_epi32(_mm512_slli_epi32(exponents, 23), _mm512_set1_epi32(0x400000));
  const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(exponents, _mm512_set1_epi32(255));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(powers, is_nan, _mm512_set1_epi32(0x7fc00000)));
}

/// Returns the scales of a group for its c-th sixteen outputs; `units` are those of its columns.
inline __attribute__((always_inline)) __m512 scales_of(ScaleType type, const std::byte* scales,
                                                       const std::byte* units, int c) {
  const auto halves = [c](const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + c * 32));
  };
  switch (type) {
    case ScaleType::e8m0:
      return e8m0_scales(scales + c * 16);
    case ScaleType::f32:
      return _mm512_loadu_ps(scales + c * 64);
    case ScaleType::f16:
      return _mm512_cvtph_ps(halves(scales));
    case ScaleType::factors: {
      const auto* const factors = reinterpret_cast<const __m128i*>(scales + c * 16);
      return _mm512_mul_ps(_mm512_cvtph_ps(halves(units)),
                           _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(factors))));
    }
    case ScaleType::e4m3: {
      const auto* const codes = reinterpret_cast<const __m128i*>(scales + c * 16);
      const __m256i bits = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(codes)), 7);
      return _mm512_mul_ps(_mm512_loadu_ps(units + c * 64), _mm512_cvtph_ps(bits));
    }
    case ScaleType::bf16:
      break;
  }
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(scales)), 16));
}

/// Scales and minima of a group that starts with column `first` of the run, from its codes.
struct GroupScales {
  const CodedTile& tile;
  const std::byte* scales;
  const std::byte* units;

  GroupScales(const CodedTile& of, const std::byte* group, std::int64_t first)
      : tile(of),
        scales(group),
        units(static_cast<const std::byte*>(of.units) +
              first / scale_unit_columns * of.units_bytes) {}

  inline __attribute__((always_inline)) __m512 scale(int c) const {
    return scales_of(tile.scales, scales, units, c);
  }
  inline __attribute__((always_inline)) __m512 min(int c, __m512 scale) const {
    if (tile.has_zeros) {
      const auto* const zeros =
          reinterpret_cast<const __m128i*>(scales + tile.scales_bytes - 64 + c * 16);
      return _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(zeros))));
    }
    return scales_of(tile.scales, scales + tile.scales_bytes / 2, units + tile.units_bytes / 2, c);
  }
};

/// The same, as read_levels has read them.
struct ReadScales {
  const float* of;
  inline __attribute__((always_inline)) __m512 scale(int c) const {
    return _mm512_loadu_ps(of + c * 16);
  }
  inline __attribute__((always_inline)) __m512 min(int c, __m512 /*scale*/) const {
    return _mm512_loadu_ps(of + 64 + c * 16);
  }
};

/// tile.sums += scale * sums - min * row sums, or = if column `first` of the run is K's first.
template <int R, bool has_mins, typename Scales>
inline __attribute__((always_inline)) void add_scaled(const CodedTile& tile, const Scales& scales,
                                                      const CodedSums<R>& sums,
                                                      std::int64_t first) {
  const bool is_first = tile.first && first == 0;
  const std::int64_t group = has_mins ? first / tile.group : 0;
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 scale = scales.scale(c);
    __m512 min;
    if constexpr (has_mins) min = scales.min(c, scale);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      float* const home = tile.sums + r * 64 + c * 16;
      const __m512 before = is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(home);
      __m512 sum = _mm512_fmadd_ps(scale, sums.at[r][c], before);
      if constexpr (has_mins) {
        sum = _mm512_fnmadd_ps(min, _mm512_set1_ps(tile.row_sums[r][group]), sum);
      }
      _mm512_storeu_ps(home, sum);
    }
  }
}

template <int R, typename Scales>
inline __attribute__((always_inline)) void add_group(const CodedTile& tile, const Scales& scales,
                                                     const CodedSums<R>& sums, std::int64_t first) {
  tile.has_mins ? add_scaled<R, true>(tile, scales, sums, first)
                : add_scaled<R, false>(tile, scales, sums, first);
}

/// Words shifted to higher bits by n, or by -n to lower ones.
inline __attribute__((always_inline)) __m512i shifted(__m512i words, int n) {
  return n < 0 ? _mm512_srli_epi16(words, static_cast<unsigned>(-n))
               : _mm512_slli_epi16(words, static_cast<unsigned>(n));
}

/// Levels of codes of 5 or 6 bits, as Nibbles below.
template <int Bits>
class Planes {
  static constexpr int upper_bits = Bits - 4;

 public:
  static constexpr int eight_bytes = Bits * 64;

  explicit Planes(const void* table) {
#pragma GCC unroll 2
    for (int i = 0; i < upper_bits; ++i) {
      table_[i] = _mm512_loadu_si512(static_cast<const std::byte*>(table) + i * 64);
    }
  }

  template <typename Use>
  inline __attribute__((always_inline)) void each_pair(const std::byte* eight, int c, int pairs,
                                                       Use use) const {
    const __m512i lower = _mm512_loadu_si512(eight + c * 64);
    const __m512i upper = _mm512_loadu_si512(eight + 256 + c * upper_bits / 4 * 64);
    const int at = c * 4 * upper_bits % 16;
    use(0, level(lower, shifted(upper, 4 - at)));
    if (pairs > 1) use(1, level(shifted(lower, -4), shifted(upper, 4 - at - upper_bits)));
    if (pairs > 2) use(2, level(shifted(lower, -8), shifted(upper, 4 - at - 2 * upper_bits)));
    if (pairs > 3) use(3, level(shifted(lower, -12), shifted(upper, 4 - at - 3 * upper_bits)));
  }

 private:
  /// Looks levels up by the lower 4 bits of one and the higher bits of the other, alone.
  inline __attribute__((always_inline)) __m512i level(__m512i lower, __m512i upper) const {
    const __m512i codes =  // a ? b : c
        _mm512_ternarylogic_epi32(_mm512_set1_epi16(15), lower, upper, 0xca);
    if constexpr (Bits == 5) return _mm512_permutexvar_epi16(codes, table_[0]);
    return _mm512_permutex2var_epi16(table_[0], codes, table_[upper_bits - 1]);
  }

  __m512i table_[upper_bits];
};

/// Levels of codes of 4 bits: 32 of them, pair `p` of an eight, from 64 bytes.
class Nibbles {
 public:
  static constexpr int eight_bytes = 256;

  explicit Nibbles(const void* table) : table_(_mm512_loadu_si512(table)) {}

  /// use(pair, vector of levels) for the pairs of 16 outputs of an eight.
  template <typename Use>
  inline __attribute__((always_inline)) void each_pair(const std::byte* eight, int c, int pairs,
                                                       Use use) const {
    const __m512i codes = _mm512_loadu_si512(eight + c * 64);
    use(0, _mm512_permutexvar_epi16(codes, table_));  // looks at 5 bits only
    if (pairs > 1) use(1, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table_));
    if (pairs > 2) use(2, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), table_));
    if (pairs > 3) use(3, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), table_));
  }

 private:
  __m512i table_;
};

/// The same for codes of 8 bits: the bytes of a bf16 from two tables, by the code's lower 7 bits.
template <bool has_lowest>
class Bytes {
 public:
  static constexpr int eight_bytes = 512;

  explicit Bytes(const void* table) : lookup_(table) {}

  template <typename Use>
  inline __attribute__((always_inline)) void each_pair(const std::byte* eight, int c, int pairs,
                                                       Use use) const {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      if (pairs <= v * 2) return;
      const __m512i codes = _mm512_loadu_si512(eight + c * 128 + v * 64);
      auto [low, high] = lookup_.of(codes);
      if constexpr (has_lowest) {  // 0xc300
        const __m512i sign = _mm512_set1_epi8(-128);
        high = _mm512_mask_mov_epi8(high, _mm512_cmpeq_epi8_mask(codes, sign),
                                    _mm512_set1_epi8(-0x3d));
      }
      use(v * 2, _mm512_unpacklo_epi8(low, high));
      if (pairs > v * 2 + 1) use(v * 2 + 1, _mm512_unpackhi_epi8(low, high));
    }
  }

 private:
  ByteLookup lookup_;
};

/// Both elements of a pair of x, or the last one and 0.
inline int pair_of(const std::byte* row, std::int64_t k, std::int64_t columns) {
  int both = 0;
  __builtin_memcpy(&both, row + k * 2, k + 1 < columns ? 4 : 2);
  return both;
}

/// Adds the products of the `left` (1 to 8) columns of an eight that starts with column k.
template <int R, typename Codes>
inline __attribute__((always_inline)) void multiply_eight(CodedSums<R>& sums, const Codes& codes,
                                                          const std::byte* eight,
                                                          const std::byte* const (&rows)[R],
                                                          std::int64_t k, std::int64_t columns) {
  const std::int64_t left = columns - k;
  const int pairs = left >= 8 ? 4 : static_cast<int>((left + 1) / 2);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    codes.each_pair(
        eight, c, pairs, [&](int pair, __m512i levels) __attribute__((always_inline)) {
#pragma GCC unroll 6
          for (int r = 0; r < R; ++r) {
            const __m512i x = _mm512_set1_epi32(pair_of(rows[r], k + pair * 2, columns));
            sums.at[r][c] = _mm512_dpbf16_ps(sums.at[r][c], reinterpret_cast<__m512bh>(levels),
                                             reinterpret_cast<__m512bh>(x));
          }
        });
  }
}

template <int R, typename Codes>
void few(const CodedTile& tile) {
  constexpr std::int64_t ahead_bytes = 4096;
  const Codes codes(tile.table);
  const std::byte* rows[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) rows[r] = static_cast<const std::byte*>(tile.rows[r]);
  const auto* group = static_cast<const std::byte*>(tile.groups);
  for (std::int64_t first = 0; first < tile.columns; first += tile.group) {
    CodedSums<R> sums;
    clear(sums);
    const std::int64_t left = tile.columns - first;
    const std::int64_t end = first + (left < tile.group ? left : tile.group);
    const std::byte* eight = group + tile.scales_bytes;
    std::int64_t k = first;
    for (; k + 8 <= end; k += 8, eight += Codes::eight_bytes) {
#pragma GCC unroll 8
      for (int line = 0; line < Codes::eight_bytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(eight) + ahead_bytes + line, _MM_HINT_T0);
      }
      multiply_eight<R>(sums, codes, eight, rows, k, k + 8);
    }
    if (k < end) multiply_eight<R>(sums, codes, eight, rows, k, end);
    add_group<R>(tile, GroupScales(tile, group, first), sums, first);
    group += tile.group_bytes;
  }
}

template <typename Codes>
void read_levels(const CodedTile& tile) {
  const Codes codes(tile.table);
  auto* out = static_cast<std::byte*>(tile.levels);
  float* out_scales = tile.read_scales;
  const auto* group = static_cast<const std::byte*>(tile.groups);
  for (std::int64_t first = 0; first < tile.columns; first += tile.group) {
    const std::int64_t left = tile.columns - first;
    const std::int64_t columns = left < tile.group ? left : tile.group;
    const GroupScales scales(tile, group, first);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const __m512 scale = scales.scale(c);
      _mm512_storeu_ps(out_scales + c * 16, scale);
      if (tile.has_mins) _mm512_storeu_ps(out_scales + 64 + c * 16, scales.min(c, scale));
    }
    out_scales += tile.read_scales_per_group();
    const std::byte* eight = group + tile.scales_bytes;
    for (std::int64_t k = 0; k < columns; k += 8, eight += Codes::eight_bytes) {
      const int pairs = columns - k >= 8 ? 4 : static_cast<int>((columns - k + 1) / 2);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        codes.each_pair(
            eight, c, pairs, [&](int pair, __m512i levels) __attribute__((always_inline)) {
              _mm512_storeu_si512(out + pair * 256 + c * 64, levels);
            });
      }
      out += pairs * 256;
    }
    group += tile.group_bytes;
  }
}

template <int R>
void from_levels(const CodedTile& tile) {
  const std::byte* rows[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) rows[r] = static_cast<const std::byte*>(tile.rows[r]);
  const auto* word = static_cast<const std::byte*>(tile.levels);
  const float* scales = tile.read_scales;
  for (std::int64_t first = 0; first < tile.columns; first += tile.group) {
    CodedSums<R> sums;
    clear(sums);
    const std::int64_t left = tile.columns - first;
    const std::int64_t end = first + (left < tile.group ? left : tile.group);
    const auto step = [&](auto x_of_row) __attribute__((always_inline)) {
      __m512i w[4];
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) w[c] = _mm512_loadu_si512(word + c * 64);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i x = _mm512_set1_epi32(x_of_row(rows[r]));
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
          sums.at[r][c] = _mm512_dpbf16_ps(sums.at[r][c], reinterpret_cast<__m512bh>(w[c]),
                                           reinterpret_cast<__m512bh>(x));
        }
      }
      word += 256;
    };
    std::int64_t k = first;
    for (; k + 2 <= end; k += 2) {
      step([k](const std::byte* row)
               __attribute__((always_inline)) { return pair_of(row, k, k + 2); });
    }
    if (k < end) {
      step([k](const std::byte* row)
               __attribute__((always_inline)) { return pair_of(row, k, k + 1); });
    }
    add_group<R>(tile, ReadScales{scales}, sums, first);
    scales += tile.read_scales_per_group();
  }
}

using CodedRoute = void (*)(const CodedTile&);
template <typename Codes>
constexpr CodedRoute few_routes[] = {few<1, Codes>, few<2, Codes>, few<3, Codes>, few<4, Codes>};
constexpr CodedRoute level_routes[] = {from_levels<1>, from_levels<2>, from_levels<3>,
                                       from_levels<4>, from_levels<5>, from_levels<6>};

/// use.operator()<Codes>() for a tile's codes.
template <typename Use>
void visit_codes(const CodedTile& tile, const Use& use) {
  if (tile.bits == 4) return use.template operator()<Nibbles>();
  if (tile.bits == 5) return use.template operator()<Planes<5>>();
  if (tile.bits == 6) return use.template operator()<Planes<6>>();
  if (tile.has_lowest) return use.template operator()<Bytes<true>>();
  use.template operator()<Bytes<false>>();
}

}  // namespace

void read_levels_avx512(const CodedTile& tile) {
  visit_codes(tile, [&]<typename Codes>() { read_levels<Codes>(tile); });
}
void coded_tile_avx512(const CodedTile& tile) { level_routes[tile.count - 1](tile); }
void coded_few_avx512(const CodedTile& tile) {
  visit_codes(tile, [&]<typename Codes>() { few_routes<Codes>[tile.count - 1](tile); });
}

}  // namespace hyb::kernels
