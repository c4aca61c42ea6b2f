#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/linear/panel_tiles.h"
#include "kernels/simd/avx2.h"

namespace hyb::kernels {
namespace {

/// A strip is 8*C outputs of a panel. All strips of a chunk of k are done before the next chunk is
/// touched, so that the panel comes from memory once, in order, and waits in the first-level cache
/// (16 KB) meanwhile.
constexpr std::int64_t line_bytes = 256;
constexpr std::int64_t chunk_lines = 64;
constexpr std::int64_t chunk_columns_max = 2 * chunk_lines;

struct Chunk {
  const float* rows;       ///< [R][chunk_columns_max] of x
  const std::byte* lines;  ///< of the panel
  std::int64_t columns;
  float* sums;  ///< [R][64]
  bool first;
  const char* prefetch;
  std::int64_t prefetch_lines;  ///< per line of the panel
};

enum class Format { f32, bf16, f16 };

/// Columns of a line.
constexpr std::int64_t columns_in_line(Format format) { return format == Format::f32 ? 1 : 2; }

/// One of a line's columns of 8 outputs.
template <Format format>
inline __m256 values_of(const std::byte* line, int output, int index) {
  if constexpr (format == Format::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(line) + output);
  } else if constexpr (format == Format::f16) {
    const std::byte* const halves = line + index * (line_bytes / 2) + output * 2;
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
  } else {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + output * 4));
    return _mm256_castsi256_ps(index == 0 ? _mm256_slli_epi32(pairs, 16)
                                          : _mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
  }
}

/// sums += x * w for R rows and 8*C outputs, the operands that are fewer kept in registers: 12
/// sums, 3 and 1 of them fill the 16.
template <Format format, int R, int C>
inline __attribute__((always_inline)) void multiply(__m256 (&sums)[R][C], const float* x,
                                                    const std::byte* line, int output, int index) {
  constexpr int held = R < C ? R : C;
  __m256 hold[held];
#pragma GCC unroll 8
  for (int i = 0; i < held; ++i) {
    hold[i] = R < C ? _mm256_broadcast_ss(x + i * chunk_columns_max)
                    : values_of<format>(line, output + i * 8, index);
  }
#pragma GCC unroll 8
  for (int j = 0; j < (R < C ? C : R); ++j) {
    const __m256 other = R < C ? values_of<format>(line, output + j * 8, index)
                               : _mm256_broadcast_ss(x + j * chunk_columns_max);
#pragma GCC unroll 8
    for (int i = 0; i < held; ++i) {
      __m256& sum = R < C ? sums[i][j] : sums[j][i];
      sum = _mm256_fmadd_ps(hold[i], other, sum);
    }
  }
}

/// The products of a line's two columns enter one after the other: the order of f32 panels.
template <Format format, int R, int C>
void strip(const Chunk& chunk, int output, std::int64_t first_line, std::int64_t last_line) {
  __m256 sums[R][C];
  float* const home = chunk.sums + output;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      sums[r][c] = chunk.first ? _mm256_setzero_ps() : _mm256_loadu_ps(home + r * 64 + c * 8);
    }
  }
  const std::byte* line = chunk.lines;
  const char* prefetch = chunk.prefetch;
  constexpr std::int64_t in_line = columns_in_line(format);
  for (std::int64_t k = 0; k < chunk.columns;
       k += in_line, line += line_bytes, prefetch += chunk.prefetch_lines * 64) {
    for (std::int64_t i = first_line; i < last_line; ++i) {
      _mm_prefetch(prefetch + i * 64, _MM_HINT_T0);
    }
    multiply<format, R, C>(sums, chunk.rows + k, line, output, 0);
    if constexpr (in_line == 2) {
      // x has a 0 for a pair's second element that does not exist; f32 panels add no such product.
      if (format == Format::f16 && k + 1 == chunk.columns) break;
      multiply<format, R, C>(sums, chunk.rows + k + 1, line, output, 1);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) _mm256_storeu_ps(home + r * 64 + c * 8, sums[r][c]);
  }
}

template <Format format, int R>
void all_strips(const Chunk& chunk) {
  constexpr int C = R == 1 ? 8 : R <= 3 ? 4 : 2;
  constexpr int strips = 8 / C;
  for (int i = 0; i < strips; ++i) {  // every strip prefetches its share of the lines
    const std::int64_t first = chunk.prefetch_lines * i / strips;
    strip<format, R, C>(chunk, 8 * C * i, first, chunk.prefetch_lines * (i + 1) / strips);
  }
}

/// Values first .. first+count-1 of a row as floats; a pair's second one that does not exist is 0.
void widen(const PanelTile& tile, std::int64_t r, std::int64_t first, std::int64_t count,
           Format format, float* to) {
  if (format != Format::bf16) {
    __builtin_memcpy(to, static_cast<const float*>(tile.rows[r]) + first,
                     static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const auto* const from = static_cast<const std::uint16_t*>(tile.rows[r]) + first;
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i,
                     _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
  }
  for (; i < count; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(from[i]) << 16;
    __builtin_memcpy(to + i, &bits, sizeof(bits));
  }
  if (count % 2 != 0) to[count] = 0.0F;
}

template <Format format>
void multiply_tile(const PanelTile& tile) {
  using Route = void (*)(const Chunk&);
  static constexpr Route routes[] = {all_strips<format, 1>, all_strips<format, 2>,
                                     all_strips<format, 3>, all_strips<format, 4>,
                                     all_strips<format, 5>, all_strips<format, 6>};
  constexpr std::int64_t chunk_columns = chunk_lines * columns_in_line(format);
  alignas(32) float rows[panel_tile_rows * chunk_columns_max];
  Chunk chunk = {.rows = rows,
                 .lines = static_cast<const std::byte*>(tile.panel),
                 .columns = 0,
                 .sums = tile.sums,
                 .first = tile.first,
                 .prefetch = static_cast<const char*>(tile.prefetch),
                 .prefetch_lines = tile.prefetch_lines};
  for (std::int64_t k = 0; k < tile.columns; k += chunk_columns) {
    const std::int64_t left = tile.columns - k;
    chunk.columns = left < chunk_columns ? left : chunk_columns;
    for (std::int64_t r = 0; r < tile.count; ++r) {
      widen(tile, r, k, chunk.columns, format, rows + r * chunk_columns_max);
    }
    routes[tile.count - 1](chunk);
    chunk.lines += chunk_lines * line_bytes;
    chunk.prefetch += chunk_lines * chunk.prefetch_lines * 64;
    chunk.first = false;
  }
}

/// The first `columns` (at most 8) lanes.
inline __m256i lane_mask(std::int64_t columns) {
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
  const __m256i mask = lane_mask(row.columns - column);
  if (row.add) scaled = _mm256_add_ps(_mm256_maskload_ps(y, mask), scaled);
  _mm256_maskstore_ps(y, mask, scaled);
}

}  // namespace

void panel_tile_bf16_avx2(const PanelTile& tile) { multiply_tile<Format::bf16>(tile); }
void panel_tile_f32_avx2(const PanelTile& tile) { multiply_tile<Format::f32>(tile); }
void panel_tile_f16_avx2(const PanelTile& tile) { multiply_tile<Format::f16>(tile); }

void panel_row_avx2(const PanelRow& row) {
  for (int column = 0; column < row.columns; column += 8) {
    __m256 sum = _mm256_loadu_ps(row.sums + column);
    if (row.bias != nullptr) {
      sum = _mm256_add_ps(sum,
                          _mm256_maskload_ps(row.bias + column, lane_mask(row.columns - column)));
    }
    const __m256 scaled = _mm256_mul_ps(_mm256_set1_ps(row.scale), sum);
    if (row.y_is_bf16) {
      write_bf16(row, column, scaled);
    } else {
      write_f32(row, column, scaled);
    }
  }
}

namespace {

inline __m256i load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }
inline void store(void* at, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(at), value);
}

/// Levels of codes of 4 bits, by their low and their high bytes.
class Nibbles {
 public:
  static constexpr int eight_bytes = 256;

  explicit Nibbles(const void* table) {
    alignas(32) std::uint8_t bytes[2][16];
    for (int i = 0; i < 16; ++i) {
      std::uint16_t level;
      __builtin_memcpy(&level, static_cast<const std::byte*>(table) + i * 2, sizeof(level));
      bytes[0][i] = static_cast<std::uint8_t>(level & 0xff);
      bytes[1][i] = static_cast<std::uint8_t>(level >> 8);
    }
    low_ = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes[0])));
    high_ = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes[1])));
  }

  /// Writes the levels of the first `pairs` pairs of an eight.
  void read_eight(const std::byte* eight, int pairs, std::byte* out) const {
    for (int c = 0; c < 8; ++c) {
      __m256i codes = load(eight + c * 32);
      for (int pair = 0; pair < pairs; ++pair) {
        const __m256i code = _mm256_and_si256(codes, _mm256_set1_epi16(15));
        const __m256i twice = _mm256_or_si256(code, _mm256_slli_epi16(code, 8));
        const __m256i levels =
            _mm256_blendv_epi8(_mm256_shuffle_epi8(low_, twice), _mm256_shuffle_epi8(high_, twice),
                               _mm256_set1_epi16(-256));
        store(out + pair * 256 + c * 32, levels);
        codes = _mm256_srli_epi16(codes, 4);
      }
    }
  }

 private:
  __m256i low_, high_;
};

/// The same for codes of 5 or 6 bits, whose levels are consecutive whole numbers.
template <int Bits>
class Planes {
 public:
  static constexpr int eight_bytes = Bits * 64;

  explicit Planes(const void* table) {
    std::uint16_t first;
    __builtin_memcpy(&first, table, sizeof(first));
    const float level = __builtin_bit_cast(float, static_cast<std::uint32_t>(first) << 16);
    zero_ = _mm256_set1_epi16(static_cast<short>(-level));
  }

  void read_eight(const std::byte* eight, int pairs, std::byte* out) const {
    constexpr int upper_bits = Bits - 4;
    for (int c = 0; c < 8; ++c) {
      __m256i lower = load(eight + c * 32);
      const std::byte* const words = eight + 256 + c / 2 * upper_bits / 4 * 64 + c % 2 * 32;
      const int at = c / 2 * 4 * upper_bits % 16;
      __m256i upper = _mm256_srl_epi16(load(words), _mm_cvtsi32_si128(at));
      for (int pair = 0; pair < pairs; ++pair) {
        const __m256i high = _mm256_and_si256(upper, _mm256_set1_epi16((1 << upper_bits) - 1));
        const __m256i code = _mm256_or_si256(_mm256_and_si256(lower, _mm256_set1_epi16(15)),
                                             _mm256_slli_epi16(high, 4));
        store(out + pair * 256 + c * 32, rounded_levels(_mm256_sub_epi16(code, zero_)));
        lower = _mm256_srli_epi16(lower, 4);
        upper = _mm256_srli_epi16(upper, upper_bits);
      }
    }
  }

 private:
  /// Whole numbers of 16 bits as bf16, which holds these exactly.
  static __m256i rounded_levels(__m256i levels) {
    const auto bits = [](__m128i half) {
      const __m256 floats = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(half));
      return _mm256_srli_epi32(_mm256_castps_si256(floats), 16);
    };
    const __m256i both = _mm256_packus_epi32(bits(_mm256_castsi256_si128(levels)),
                                             bits(_mm256_extracti128_si256(levels, 1)));
    return _mm256_permute4x64_epi64(both, 0xd8);
  }

  __m256i zero_;
};

/// The same for codes of 8 bits.
template <bool has_lowest>
class Bytes {
 public:
  static constexpr int eight_bytes = 512;

  explicit Bytes(const void* table) : lookup_(table) {}

  void read_eight(const std::byte* eight, int pairs, std::byte* out) const {
    for (int c = 0; c < 8; ++c) {  // 8 outputs
      for (int v = 0; v * 2 < pairs; ++v) {
        const __m256i codes = load(eight + c / 2 * 128 + v * 64 + c % 2 * 32);
        auto [low, high] = lookup_.of(codes);
        if constexpr (has_lowest) {  // 0xc300
          const __m256i is_lowest = _mm256_cmpeq_epi8(codes, _mm256_set1_epi8(-128));
          high = _mm256_blendv_epi8(high, _mm256_set1_epi8(-0x3d), is_lowest);
        }
        std::byte* const to = out + v * 512 + c * 32;
        store(to, _mm256_unpacklo_epi8(low, high));
        if (pairs > v * 2 + 1) store(to + 256, _mm256_unpackhi_epi8(low, high));
      }
    }
  }

 private:
  ByteLookup lookup_;
};

template <typename Codes>
void read_levels(const CodedTile& tile) {
  const Codes codes(tile.table);
  auto* out = static_cast<std::byte*>(tile.levels);
  const auto* group = static_cast<const std::byte*>(tile.groups);
  for (std::int64_t first = 0; first < tile.columns; first += tile.group) {
    const std::int64_t left = tile.columns - first;
    const std::int64_t columns = left < tile.group ? left : tile.group;
    const std::byte* eight = group + tile.scales_bytes;
    for (std::int64_t k = 0; k < columns; k += 8, eight += Codes::eight_bytes) {
      const int pairs = columns - k >= 8 ? 4 : static_cast<int>((columns - k + 1) / 2);
      codes.read_eight(eight, pairs, out);
      out += pairs * 256;
    }
    group += tile.group_bytes;
  }
}

/// Eight powers of two of E8M0.
inline __m256 e8m0_scales(const std::byte* scales) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales));
  const __m256i exponents = _mm256_cvtepu8_epi32(bytes);
  const __m256i powers =
      _mm256_max_epi32(_mm256_slli_epi32(exponents, 23), _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_cmpeq_epi32(exponents, _mm256_set1_epi32(255));
  return _mm256_castsi256_ps(_mm256_blendv_epi8(powers, _mm256_set1_epi32(0x7fc00000), is_nan));
}

/// Returns the scales of a group of eight outputs from n on; `units` are of its columns.
inline __m256 scales_of(ScaleType type, const std::byte* scales, const std::byte* units,
                        std::int64_t n) {
  const auto halves = [n](const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + n * 2));
  };
  switch (type) {
    case ScaleType::e8m0:
      return e8m0_scales(scales + n);
    case ScaleType::f32:
      return _mm256_loadu_ps(reinterpret_cast<const float*>(scales) + n);
    case ScaleType::f16:
      return _mm256_cvtph_ps(halves(scales));
    case ScaleType::factors: {
      const __m128i factors = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + n));
      return _mm256_mul_ps(_mm256_cvtph_ps(halves(units)),
                           _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(factors)));
    }
    case ScaleType::e4m3: {
      const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + n));
      const __m128i bits = _mm_slli_epi16(_mm_cvtepu8_epi16(codes), 7);
      return _mm256_mul_ps(_mm256_loadu_ps(reinterpret_cast<const float*>(units) + n),
                           _mm256_cvtph_ps(bits));
    }
    case ScaleType::bf16:
      break;
  }
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(scales)), 16));
}

/// The scales and minima of all groups of the run, as f32.
void read_scales(const CodedTile& tile) {
  float* out = tile.read_scales;
  const auto* group = static_cast<const std::byte*>(tile.groups);
  for (std::int64_t first = 0; first < tile.columns; first += tile.group) {
    const auto* const units =
        static_cast<const std::byte*>(tile.units) + first / scale_unit_columns * tile.units_bytes;
    for (std::int64_t n = 0; n < 64; n += 8) {
      const __m256 scale = scales_of(tile.scales, group, units, n);
      _mm256_storeu_ps(out + n, scale);
      if (tile.has_zeros) {
        const std::byte* const zeros = group + tile.scales_bytes - 64 + n;
        const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros));
        _mm256_storeu_ps(out + 64 + n,
                         _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes))));
      } else if (tile.has_mins) {
        _mm256_storeu_ps(out + 64 + n, scales_of(tile.scales, group + tile.scales_bytes / 2,
                                                 units + tile.units_bytes / 2, n));
      }
    }
    out += tile.read_scales_per_group();
    group += tile.group_bytes;
  }
}

/// tile.sums += scale * sums - min * row sums, or = if `group` of the run is K's first.
void add_group(const CodedTile& tile, const float* sums, std::int64_t group) {
  const bool is_first = tile.first && group == 0;
  const float* const scales = tile.read_scales + group * tile.read_scales_per_group();
  for (std::int64_t n = 0; n < 64; n += 8) {
    const __m256 scale = _mm256_loadu_ps(scales + n);
    const __m256 min = tile.has_mins ? _mm256_loadu_ps(scales + 64 + n) : _mm256_setzero_ps();
    for (std::int64_t r = 0; r < tile.count; ++r) {
      float* const home = tile.sums + r * 64 + n;
      const __m256 before = is_first ? _mm256_setzero_ps() : _mm256_loadu_ps(home);
      __m256 sum = _mm256_fmadd_ps(scale, _mm256_loadu_ps(sums + r * 64 + n), before);
      if (tile.has_mins) {
        sum = _mm256_fnmadd_ps(min, _mm256_set1_ps(tile.row_sums[r][group]), sum);
      }
      _mm256_storeu_ps(home, sum);
    }
  }
}

}  // namespace

void read_levels_avx2(const CodedTile& tile) {
  read_scales(tile);
  if (tile.bits == 4) return read_levels<Nibbles>(tile);
  if (tile.bits == 5) return read_levels<Planes<5>>(tile);
  if (tile.bits == 6) return read_levels<Planes<6>>(tile);
  tile.has_lowest ? read_levels<Bytes<true>>(tile) : read_levels<Bytes<false>>(tile);
}

void coded_tile_avx2(const CodedTile& tile) {
  alignas(32) float sums[panel_tile_rows * 64];
  for (std::int64_t k = 0; k < tile.columns; k += tile.group) {
    const void* rows[panel_tile_rows];
    for (std::int64_t r = 0; r < tile.count; ++r) {
      rows[r] = static_cast<const std::byte*>(tile.rows[r]) + k * 2;
    }
    const std::int64_t left = tile.columns - k;
    const std::byte* const levels = static_cast<const std::byte*>(tile.levels) + k * 128;
    panel_tile_bf16_avx2({.rows = rows,
                          .count = tile.count,
                          .panel = levels,
                          .columns = left < tile.group ? left : tile.group,
                          .sums = sums,
                          .first = true,
                          .prefetch = levels,
                          .prefetch_lines = 0});
    add_group(tile, sums, k / tile.group);
  }
}

}  // namespace hyb::kernels
