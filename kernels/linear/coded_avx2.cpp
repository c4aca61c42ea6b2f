#include <cstddef>
#include <cstdint>

#include "kernels/linear/coded_routes.h"
#include "kernels/linear/panel_routes.h"
#include "kernels/simd/byte_levels_avx2.h"

namespace hyb::kernels {
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

/// The same for codes of 8 bits.
class Bytes {
 public:
  static constexpr int eight_bytes = 512;

  explicit Bytes(const void* table) : lookup_(table) {}

  void read_eight(const std::byte* eight, int pairs, std::byte* out) const {
    for (int c = 0; c < 8; ++c) {  // 8 outputs
      for (int v = 0; v * 2 < pairs; ++v) {
        const auto [low, high] = lookup_.of(load(eight + c / 2 * 128 + v * 64 + c % 2 * 32));
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

/// tile.sums += scale * sums, or = if this is the first group.
void add_group(const CodedTile& tile, const std::byte* scales, const float* sums, bool is_first) {
  for (std::int64_t n = 0; n < 64; n += 8) {
    __m256 scale;
    if (tile.scales_are_f32) {
      scale = _mm256_loadu_ps(reinterpret_cast<const float*>(scales) + n);
    } else {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + n * 2));
      scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    }
    for (std::int64_t r = 0; r < tile.count; ++r) {
      float* const home = tile.sums + r * 64 + n;
      const __m256 before = is_first ? _mm256_setzero_ps() : _mm256_loadu_ps(home);
      _mm256_storeu_ps(home, _mm256_fmadd_ps(scale, _mm256_loadu_ps(sums + r * 64 + n), before));
    }
  }
}

}  // namespace

void read_levels_avx2(const CodedTile& tile) {
  tile.has_nibbles ? read_levels<Nibbles>(tile) : read_levels<Bytes>(tile);
}

void coded_tile_avx2(const CodedTile& tile) {
  const auto* group = static_cast<const std::byte*>(tile.groups);
  alignas(32) float sums[panel_tile_rows * 64];
  for (std::int64_t k = 0; k < tile.columns; k += tile.group, group += tile.group_bytes) {
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
                          .soon = levels,
                          .soon_lines = 0});
    add_group(tile, group, sums, tile.first && k == 0);
  }
}

}  // namespace hyb::kernels
