#include <cstddef>
#include <cstdint>

#include "kernels/linear/coded_routes.h"
#include "kernels/simd/byte_levels_avx512.h"

namespace hyb::kernels {
namespace {

template <int R>
struct Sums {
  __m512 at[R][4];
};

template <int R>
inline __attribute__((always_inline)) void clear(Sums<R>& sums) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sums.at[r][c] = _mm512_setzero_ps();
  }
}

/// tile.sums += scale * sums, or = if this is the first group.
template <int R>
inline __attribute__((always_inline)) void add_group(const CodedTile& tile, const std::byte* scales,
                                                     const Sums<R>& sums, bool is_first) {
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    __m512 scale;
    if (tile.scales_are_f32) {
      scale = _mm512_loadu_ps(scales + c * 64);
    } else {
      const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales + c * 32));
      scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      float* const home = tile.sums + r * 64 + c * 16;
      const __m512 before = is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(home);
      _mm512_storeu_ps(home, _mm512_fmadd_ps(scale, sums.at[r][c], before));
    }
  }
}

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
      const auto [low, high] = lookup_.of(_mm512_loadu_si512(eight + c * 128 + v * 64));
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

/// Adds the products of the `left` (1 to 8) columns of an eight that begins with column k.
template <int R, typename Codes>
inline __attribute__((always_inline)) void multiply_eight(Sums<R>& sums, const Codes& codes,
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
    Sums<R> sums;
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
    add_group<R>(tile, group, sums, tile.first && first == 0);
    group += tile.group_bytes;
  }
}

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
  const auto* group = static_cast<const std::byte*>(tile.groups);
  for (std::int64_t first = 0; first < tile.columns; first += tile.group) {
    Sums<R> sums;
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
    add_group<R>(tile, group, sums, tile.first && first == 0);
    group += tile.group_bytes;
  }
}

using Route = void (*)(const CodedTile&);
constexpr Route nibble_routes[] = {few<1, Nibbles>, few<2, Nibbles>, few<3, Nibbles>,
                                   few<4, Nibbles>};
constexpr Route byte_routes[] = {few<1, Bytes>, few<2, Bytes>, few<3, Bytes>, few<4, Bytes>};
constexpr Route level_routes[] = {from_levels<1>, from_levels<2>, from_levels<3>,
                                  from_levels<4>, from_levels<5>, from_levels<6>};

}  // namespace

void read_levels_avx512(const CodedTile& tile) {
  tile.has_nibbles ? read_levels<Nibbles>(tile) : read_levels<Bytes>(tile);
}
void coded_tile_avx512(const CodedTile& tile) { level_routes[tile.count - 1](tile); }
void coded_few_avx512(const CodedTile& tile) {
  (tile.has_nibbles ? nibble_routes : byte_routes)[tile.count - 1](tile);
}

}  // namespace hyb::kernels
