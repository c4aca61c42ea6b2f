#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/linear/gguf_blocks.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// Says where a code lies within eight columns: one of 8 bits, or the lower 4 of another.
struct CodePlace {
  std::int64_t byte;
  int shift;
};

constexpr CodePlace place_of(std::int64_t bits, std::int64_t n, std::int64_t k) {
  const std::int64_t pair = k / 2;
  if (bits < 8) return {n * 4 + k % 2 * 2 + pair / 2, static_cast<int>(pair % 2) * 4};
  return {n / 16 * 128 + k / 4 * 64 + n % 16 / 4 * 16 + pair % 2 * 8 + n % 4 * 2 + k % 2, 0};
}

/// Returns where the bits above the lower 4 lie.
constexpr CodePlace upper_place(std::int64_t bits, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t lower_bytes = 4 * Weight::panel_rows;
  const std::int64_t at = (bits - 4) * (n / 16 * 4 + k / 2);
  return {lower_bytes + at / 16 * Weight::panel_rows + n % 16 * 4 + k % 2 * 2 + at % 16 / 8,
          static_cast<int>(at % 8)};
}

/// Pairs of columns 16 bits apart, of all codes `bits` bits beside each other from bit `shift` on.
template <int bits, int shift>
constexpr std::uint32_t pairs_of(EightCodes codes) {
  constexpr EightCodes mask = 0x0001000100010001U * ((1U << bits) - 1);
  constexpr EightCodes moved = EightCodes{1} << 48 | EightCodes{1} << (32 + bits) |
                               EightCodes{1} << (16 + 2 * bits) | EightCodes{1} << (3 * bits);
  const EightCodes even = (codes >> shift & mask) * moved >> 48;
  const EightCodes odd = (codes >> (shift + 8) & mask) * moved >> 48;
  return static_cast<std::uint32_t>(even | odd << 16);
}

/// Codes of groups of columns, eight after eight; the groups of a panel are `group_bytes` apart.
struct CodeGroups {
  const EightCodes* codes;
  std::int64_t count = 1;        ///< of groups
  std::int64_t eights = 1;       ///< of a group
  std::int64_t group_bytes = 0;  ///< where there are several
};

/// put_codes() of codes of `bits` bits.
template <int bits>
void put_codes(const CodeGroups& groups, std::int64_t n, std::byte* eights) {
  constexpr bool has_upper = bits > 4 && bits < 8;
  constexpr std::int64_t eight_bytes = bits * Weight::panel_rows;
  const std::int64_t from_lower = bits < 8 ? n * 4 : place_of(8, n, 0).byte;
  const CodePlace place = upper_place(bits, n / 16 * 16, 0);
  const std::int64_t from_upper = place.byte / 4 * 4 + n % 16 * 4;
  const auto upper_shift = place.byte % 4 * 8 + place.shift;
  const EightCodes* codes = groups.codes;
  for (std::int64_t g = 0; g < groups.count; ++g) {
    std::byte* eight = eights + g * groups.group_bytes;
    for (std::int64_t i = 0; i < groups.eights; ++i, ++codes, eight += eight_bytes) {
      if constexpr (bits == 8) {
        for (std::int64_t k = 0; k < 8; k += 2) {
          const auto pair = static_cast<std::uint16_t>(*codes >> (k * 8));
          std::memcpy(eight + from_lower + place_of(8, 0, k).byte, &pair, sizeof(pair));
        }
      } else {
        const std::uint32_t word = pairs_of<4, 0>(*codes);
        std::memcpy(eight + from_lower, &word, sizeof(word));
      }
      if constexpr (has_upper) {
        std::uint32_t word;
        std::memcpy(&word, eight + from_upper, sizeof(word));
        word |= pairs_of<bits - 4, 4>(*codes) << upper_shift;
        std::memcpy(eight + from_upper, &word, sizeof(word));
      }
    }
  }
}

/// Writes codes of `bits` bits to row n of a panel, from the first group's first eight columns on;
/// where codes have 5 or 6 bits zeros are there.
inline void put_codes(std::int64_t bits, const CodeGroups& groups, std::int64_t n,
                      std::byte* eights) {
  if (bits == 4) return put_codes<4>(groups, n, eights);
  if (bits == 5) return put_codes<5>(groups, n, eights);
  if (bits == 6) return put_codes<6>(groups, n, eights);
  put_codes<8>(groups, n, eights);
}

/// Up to eight bytes from `first` on, then zeros.
inline EightCodes bytes_of(const std::byte* bytes, std::int64_t first, std::int64_t count) {
  EightCodes codes = 0;
  std::memcpy(&codes, bytes + first, static_cast<std::size_t>(count));
  return codes;
}

/// Codes of 4 bits from column `first` on, two in a byte.
inline EightCodes nibbles_of(const std::byte* bytes, std::int64_t first) {
  EightCodes codes = bytes_of(bytes, first / 2, 4);
  codes = (codes | codes << 16) & 0x0000ffff0000ffffU;
  codes = (codes | codes << 8) & 0x00ff00ff00ff00ffU;
  return (codes | codes << 4) & 0x0f0f0f0f0f0f0f0fU;
}

}  // namespace hyb::kernels
