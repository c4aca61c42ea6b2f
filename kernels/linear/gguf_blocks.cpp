#include "kernels/linear/gguf_blocks.h"

#include <bit>
#include <cstring>

#include "core/base/error.h"
#include "kernels/floats.h"

namespace hyb::kernels {
namespace {

/// Twice the numbers of E2M1.
constexpr std::array<std::int8_t, 16> e2m1_levels = {0, 1,  2,  3,  4,  6,  8,  12,
                                                     0, -1, -2, -3, -4, -6, -8, -12};

/// The bytes of a block, by their place in it.
class Bytes {
 public:
  explicit Bytes(const std::byte* at) : at_(at) {}

  unsigned operator[](int i) const { return std::to_integer<unsigned>(at_[i]); }
  int signed_at(int i) const { return static_cast<std::int8_t>(at_[i]); }
  unsigned u16(int i) const { return (*this)[i] | (*this)[i + 1] << 8; }
  std::uint32_t u32(int i) const { return u16(i) | std::uint32_t{u16(i + 2)} << 16; }
  float half(int i) const { return to_float(f16{static_cast<std::uint16_t>(u16(i))}); }
  /// Nibble e of blocks whose first half of elements is in the low halves of bytes from `first` on.
  unsigned nibble(int first, int e, int half) const {
    return (*this)[first + e % half] >> (e / half * 4) & 15U;
  }

 private:
  const std::byte* at_;
};

std::int8_t level(unsigned code, int zero = 0) {
  return static_cast<std::int8_t>(static_cast<int>(code) - zero);
}

template <typename LevelOf>
void fill_levels(GgufGroups& out, int elements, const LevelOf& level_of) {
  for (int e = 0; e < elements; ++e) out.levels[static_cast<std::size_t>(e)] = level_of(e);
}

template <typename ScaleOf>
void fill_scales(GgufGroups& out, int groups, const ScaleOf& scale_of) {
  for (int i = 0; i < groups; ++i) out.scales[static_cast<std::size_t>(i)] = scale_of(i);
}

/// Of a block with one scale, whose groups have whole numbers.
template <typename FactorOf>
void fill_factors(GgufGroups& out, float scale, int groups, const FactorOf& factor_of) {
  out.scale = scale;
  for (std::size_t i = 0; i < static_cast<std::size_t>(groups); ++i) {
    out.factors[i] = static_cast<std::int8_t>(factor_of(static_cast<int>(i)));
    out.scales[i] = scale * static_cast<float>(out.factors[i]);
  }
}

template <typename FactorOf>
void fill_min_factors(GgufGroups& out, float min, int groups, const FactorOf& factor_of) {
  out.min = min;
  for (std::size_t i = 0; i < static_cast<std::size_t>(groups); ++i) {
    out.min_factors[i] = static_cast<std::int8_t>(factor_of(static_cast<int>(i)));
    out.mins[i] = min * static_cast<float>(out.min_factors[i]);
  }
}

/// Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL: 32 nibbles after `header` bytes, of Q5 with a fifth bit each in
/// the four bytes before them.
void read_nibbles(GgufType type, Bytes block, GgufGroups& out) {
  const bool has_min = type == GgufType::q4_1 || type == GgufType::q5_1;
  const bool has_fifth = type == GgufType::q5_0 || type == GgufType::q5_1;
  const int header = has_min ? 4 : 2;
  const std::uint32_t fifth = has_fifth ? block.u32(header) : 0;
  const int nibbles = header + (has_fifth ? 4 : 0);
  const int zero = has_min ? 0 : has_fifth ? 16 : 8;
  out.scales[0] = block.half(0);
  if (has_min) out.mins[0] = -block.half(2);
  fill_levels(out, 32, [&](int e) {
    const unsigned code = block.nibble(nibbles, e, 16) | (fifth >> e & 1U) << 4;
    return type == GgufType::iq4_nl ? iq4_levels[code] : level(code, zero);
  });
}

void read_q8_0(Bytes block, GgufGroups& out) {
  out.scales[0] = block.half(0);
  fill_levels(out, 32, [&](int e) { return static_cast<std::int8_t>(block.signed_at(2 + e)); });
}

void read_q2_k(Bytes block, GgufGroups& out) {
  fill_factors(out, block.half(80), 16, [&](int i) { return block[i] & 15U; });
  fill_min_factors(out, block.half(82), 16, [&](int i) { return block[i] >> 4; });
  fill_levels(out, 256, [&](int e) {
    return level(block[16 + e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3U);
  });
}

void read_q3_k(Bytes block, GgufGroups& out) {
  constexpr int low = 32, scales = 96;
  fill_factors(out, block.half(108), 16, [&](int i) {
    const unsigned code = (block[scales + i % 8] >> (i / 8 * 4) & 15U) |
                          (block[scales + 8 + i % 4] >> (i / 4 * 2) & 3U) << 4;
    return static_cast<int>(code) - 32;
  });
  fill_levels(out, 256, [&](int e) {
    const int half = e / 128, part = e % 128 / 32, column = e % 32;
    const unsigned code = block[low + half * 32 + column] >> (part * 2) & 3U;
    const bool has_third = (block[column] >> (half * 4 + part) & 1U) != 0;
    return level(code, has_third ? 0 : 4);
  });
}

/// Six bits of scale and of minimum for each of eight groups, in twelve bytes of Q4_K and Q5_K.
void read_six_bits(Bytes block, GgufGroups& out) {
  constexpr int first = 4;
  fill_factors(out, block.half(0), 8, [&](int i) {
    return i < 4 ? block[first + i] & 63U
                 : (block[first + i + 4] & 15U) | block[first + i - 4] >> 6 << 4;
  });
  fill_min_factors(out, block.half(2), 8, [&](int i) {
    return i < 4 ? block[first + i + 4] & 63U
                 : block[first + i + 4] >> 4 | block[first + i] >> 6 << 4;
  });
}

void read_q4_k(Bytes block, GgufGroups& out) {
  read_six_bits(block, out);
  fill_levels(out, 256, [&](int e) { return level(block.nibble(16 + e / 64 * 32, e % 64, 32)); });
}

void read_q5_k(Bytes block, GgufGroups& out) {
  read_six_bits(block, out);
  fill_levels(out, 256, [&](int e) {
    return level(block.nibble(48 + e / 64 * 32, e % 64, 32) | (block[16 + e % 32] >> (e / 32) & 1U)
                                                                  << 4);
  });
}

void read_q6_k(Bytes block, GgufGroups& out) {
  fill_factors(out, block.half(208), 16, [&](int i) { return block.signed_at(192 + i); });
  fill_levels(out, 256, [&](int e) {
    const int half = e / 128, part = e % 128 / 32, column = e % 32;
    const unsigned low = block[half * 64 + part % 2 * 32 + column] >> (part / 2 * 4) & 15U;
    const unsigned high = block[128 + half * 32 + column] >> (part * 2) & 3U;
    return level(low | high << 4, 32);
  });
}

void read_iq4_xs(Bytes block, GgufGroups& out) {
  const unsigned high = block.u16(2);
  fill_factors(out, block.half(0), 8, [&](int i) {
    const unsigned code = (block[4 + i / 2] >> (i % 2 * 4) & 15U) | (high >> (i * 2) & 3U) << 4;
    return static_cast<int>(code) - 32;
  });
  fill_levels(out, 256,
              [&](int e) { return iq4_levels[block.nibble(8 + e / 32 * 16, e % 32, 16)]; });
}

/// Half of 2^(exponent - 127), since levels are twice their numbers.
float half_power(unsigned exponent) {
  constexpr std::uint32_t smallest = 0x00200000U;  // 2^-128
  return std::bit_cast<float>(exponent < 2 ? smallest << exponent : (exponent - 1) << 23);
}

void read_mxfp4(Bytes block, GgufGroups& out) {
  out.scales[0] = half_power(block[0]);
  fill_levels(out, 32, [&](int e) { return e2m1_levels[block.nibble(1, e, 16)]; });
}

/// Half of an unsigned number of 4 bits of exponent and 3 of mantissa; 0 where that is all ones.
float half_ue4m3(unsigned code) {
  if (code == 0 || code == 0x7f) return 0.0F;
  const unsigned exponent = code >> 3 & 15U, mantissa = code & 7U;
  const float value = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9F
                                    : std::bit_cast<float>((exponent + 120) << 23 | mantissa << 20);
  return value * 0.5F;
}

void read_nvfp4(Bytes block, GgufGroups& out) {
  fill_scales(out, 4, [&](int i) { return half_ue4m3(block[i]); });
  fill_levels(out, 64, [&](int e) { return e2m1_levels[block.nibble(4 + e / 16 * 8, e % 16, 8)]; });
}

/// Five levels of -1, 0 and 1 in a byte: digits of a number to the base of three.
void read_tq1_0(Bytes block, GgufGroups& out) {
  constexpr std::array<unsigned, 5> powers = {1, 3, 9, 27, 81};
  fill_scales(out, 2, [&](int) { return block.half(52); });
  fill_levels(out, 256, [&](int e) {
    const auto [at, digit] = e < 160   ? std::pair(e % 32, e / 32)
                             : e < 240 ? std::pair(32 + (e - 160) % 16, (e - 160) / 16)
                                       : std::pair(48 + (e - 240) % 4, (e - 240) / 4);
    const unsigned shifted = block[at] * powers[static_cast<std::size_t>(digit)] & 255U;
    return level(shifted * 3 >> 8, 1);
  });
}

void read_tq2_0(Bytes block, GgufGroups& out) {
  fill_scales(out, 2, [&](int) { return block.half(64); });
  fill_levels(out, 256, [&](int e) {
    return level(block[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3U, 1);
  });
}

void read_q1_0(Bytes block, GgufGroups& out) {
  out.scales[0] = block.half(0);
  fill_levels(out, 128, [&](int e) {
    return static_cast<std::int8_t>((block[2 + e / 8] >> (e % 8) & 1U) != 0 ? 1 : -1);
  });
}

void read_q2_0(Bytes block, GgufGroups& out) {
  out.scales[0] = block.half(0);
  fill_levels(out, 64, [&](int e) { return level(block[2 + e / 4] >> (e % 4 * 2) & 3U, 1); });
}

}  // namespace

int gguf_group(GgufType type) {
  switch (type) {
    case GgufType::q2_k:
    case GgufType::q3_k:
    case GgufType::q6_k:
    case GgufType::nvfp4:
      return 16;
    case GgufType::q4_0:
    case GgufType::q4_1:
    case GgufType::q5_0:
    case GgufType::q5_1:
    case GgufType::q8_0:
    case GgufType::iq4_nl:
    case GgufType::q4_k:
    case GgufType::q5_k:
    case GgufType::iq4_xs:
    case GgufType::mxfp4:
      return 32;
    case GgufType::q2_0:
      return 64;
    case GgufType::tq1_0:
    case GgufType::tq2_0:
    case GgufType::q1_0:
      return 128;
    default:
      return 0;
  }
}

bool is_gguf_coded(GgufType type) { return gguf_group(type) > 0; }

bool has_gguf_mins(GgufType type) {
  return type == GgufType::q4_1 || type == GgufType::q5_1 || type == GgufType::q2_k ||
         type == GgufType::q4_k || type == GgufType::q5_k;
}

bool has_gguf_factors(GgufType type) {
  return (type >= GgufType::q2_k && type <= GgufType::q6_k) || type == GgufType::iq4_xs;
}

int gguf_code_bits(GgufType type) {
  if (type == GgufType::q8_0) return 8;
  if (type == GgufType::q6_k) return 6;
  if (type == GgufType::q5_0 || type == GgufType::q5_1 || type == GgufType::q5_k) return 5;
  return is_gguf_coded(type) && type != GgufType::nvfp4 ? 4 : 0;
}

int gguf_level(GgufType type, unsigned code) {
  switch (type) {
    case GgufType::iq4_nl:
    case GgufType::iq4_xs:
      return iq4_levels[code % 16];
    case GgufType::mxfp4:
      return e2m1_levels[code % 16];
    case GgufType::q1_0:
      return code % 16 == 0 ? -1 : 1;
    case GgufType::q3_k:
      return static_cast<int>(code % 16) - 4;
    case GgufType::tq1_0:
    case GgufType::tq2_0:
    case GgufType::q2_0:
      return static_cast<int>(code % 16) - 1;
    case GgufType::q4_0:
      return static_cast<int>(code % 16) - 8;
    case GgufType::q5_0:
      return static_cast<int>(code % 32) - 16;
    case GgufType::q6_k:
      return static_cast<int>(code % 64) - 32;
    default:
      return static_cast<int>(code % (1U << gguf_code_bits(type)));
  }
}

void read_gguf_block(GgufType type, const std::byte* block, GgufGroups& out) {
  out.group = gguf_group(type);
  out.has_mins = has_gguf_mins(type);
  switch (const Bytes bytes(block); type) {
    case GgufType::q4_0:
    case GgufType::q4_1:
    case GgufType::q5_0:
    case GgufType::q5_1:
    case GgufType::iq4_nl:
      return read_nibbles(type, bytes, out);
    case GgufType::q8_0:
      return read_q8_0(bytes, out);
    case GgufType::q2_k:
      return read_q2_k(bytes, out);
    case GgufType::q3_k:
      return read_q3_k(bytes, out);
    case GgufType::q4_k:
      return read_q4_k(bytes, out);
    case GgufType::q5_k:
      return read_q5_k(bytes, out);
    case GgufType::q6_k:
      return read_q6_k(bytes, out);
    case GgufType::iq4_xs:
      return read_iq4_xs(bytes, out);
    case GgufType::mxfp4:
      return read_mxfp4(bytes, out);
    case GgufType::nvfp4:
      return read_nvfp4(bytes, out);
    case GgufType::tq1_0:
      return read_tq1_0(bytes, out);
    case GgufType::tq2_0:
      return read_tq2_0(bytes, out);
    case GgufType::q1_0:
      return read_q1_0(bytes, out);
    case GgufType::q2_0:
      return read_q2_0(bytes, out);
    default:
      require(false, "gguf: a type with blocks that are read");
  }
}

void read_gguf_values(GgufType type, const std::byte* blocks, std::span<float> out) {
  const GgufBlock& block = *gguf_block(static_cast<std::uint32_t>(type));
  require(out.size() % block.elements == 0, "gguf: whole blocks");
  GgufGroups groups;
  for (; !out.empty(); out = out.subspan(block.elements), blocks += block.bytes) {
    read_gguf_block(type, blocks, groups);
    for (std::size_t e = 0; e < block.elements; ++e) {
      const std::size_t i = e / static_cast<std::size_t>(groups.group);
      const float product = groups.scales[i] * static_cast<float>(groups.levels[e]);
      out[e] = groups.has_mins ? product - groups.mins[i] : product;
    }
  }
}

}  // namespace hyb::kernels
