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

/// A byte in all eight places.
constexpr EightCodes each(unsigned byte) { return 0x0101010101010101U * EightCodes{byte}; }

/// The bytes of a block, by their place in it.
class Bytes {
 public:
  explicit Bytes(const std::byte* at) : at_(at) {}

  unsigned operator[](int i) const { return std::to_integer<unsigned>(at_[i]); }
  int signed_at(int i) const { return static_cast<std::int8_t>(at_[i]); }
  unsigned u16(int i) const { return (*this)[i] | (*this)[i + 1] << 8; }
  f16 half(int i) const { return {static_cast<std::uint16_t>(u16(i))}; }
  EightCodes eight(int i) const {
    EightCodes bytes;
    std::memcpy(&bytes, at_ + i, sizeof(bytes));
    return bytes;
  }
  /// Elements e to e + 7 of blocks whose first half of elements is in the low halves of bytes from
  /// `first` on.
  EightCodes nibbles(int first, int e, int half) const {
    return eight(first + e % half) >> (e / half * 4) & each(15);
  }

 private:
  const std::byte* at_;
};

/// Bit i of a byte as byte i.
EightCodes bits_of(unsigned byte) {
  const EightCodes apart = each(byte) & 0x8040201008040201U;
  return (apart + each(0x7f)) >> 7 & each(1);
}

/// `codes_from(e)`: those of elements e to e + 7.
template <typename CodesFrom>
void fill_codes(GgufGroups& out, int elements, const CodesFrom& codes_from) {
  for (int e = 0; e < elements; e += 8) out.codes[static_cast<std::size_t>(e / 8)] = codes_from(e);
}

template <typename FactorOf>
void fill_factors(std::array<std::int8_t, GgufGroups::groups_max>& out, int groups,
                  const FactorOf& factor_of) {
  for (int i = 0; i < groups; ++i) {
    out[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(factor_of(i));
  }
}

/// Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL: 32 nibbles after `header` bytes, of Q5 with a fifth bit each in
/// the four bytes before them.
template <bool has_min, bool has_fifth>
void read_nibbles(Bytes block, GgufGroups& out) {
  const int header = has_min ? 4 : 2;
  const int nibbles = header + (has_fifth ? 4 : 0);
  out.scale = block.half(0);
  if (has_min) out.min = {static_cast<std::uint16_t>(block.half(2).bits ^ 0x8000U)};
  fill_codes(out, 32, [&](int e) {
    const EightCodes fifth = has_fifth ? bits_of(block[header + e / 8]) : 0;
    return block.nibbles(nibbles, e, 16) | fifth << 4;
  });
}

void read_q8_0(Bytes block, GgufGroups& out) {
  out.scale = block.half(0);
  fill_codes(out, 32, [&](int e) { return signs_and_sizes(block.eight(2 + e)); });
}

void read_q2_k(Bytes block, GgufGroups& out) {
  out.scale = block.half(80);
  fill_factors(out.factors, 16, [&](int i) { return block[i] & 15U; });
  out.min = block.half(82);
  fill_factors(out.min_factors, 16, [&](int i) { return block[i] >> 4; });
  fill_codes(out, 256, [&](int e) {
    return block.eight(16 + e / 128 * 32 + e % 32) >> (e % 128 / 32 * 2) & each(3);
  });
}

void read_q3_k(Bytes block, GgufGroups& out) {
  constexpr int low = 32, scales = 96;
  out.scale = block.half(108);
  fill_factors(out.factors, 16, [&](int i) {
    const unsigned code = (block[scales + i % 8] >> (i / 8 * 4) & 15U) |
                          (block[scales + 8 + i % 4] >> (i / 4 * 2) & 3U) << 4;
    return static_cast<int>(code) - 32;
  });
  fill_codes(out, 256, [&](int e) {
    const int half = e / 128, part = e % 128 / 32, column = e % 32;
    const EightCodes third = block.eight(column) >> (half * 4 + part) & each(1);
    return (block.eight(low + half * 32 + column) >> (part * 2) & each(3)) | third << 2;
  });
}

/// Six bits of scale and of minimum for each of eight groups, in twelve bytes of Q4_K and Q5_K.
void read_six_bits(Bytes block, GgufGroups& out) {
  constexpr int first = 4;
  out.scale = block.half(0);
  fill_factors(out.factors, 8, [&](int i) {
    return i < 4 ? block[first + i] & 63U
                 : (block[first + i + 4] & 15U) | block[first + i - 4] >> 6 << 4;
  });
  out.min = block.half(2);
  fill_factors(out.min_factors, 8, [&](int i) {
    return i < 4 ? block[first + i + 4] & 63U
                 : block[first + i + 4] >> 4 | block[first + i] >> 6 << 4;
  });
}

void read_q4_k(Bytes block, GgufGroups& out) {
  read_six_bits(block, out);
  fill_codes(out, 256, [&](int e) { return block.nibbles(16 + e / 64 * 32, e % 64, 32); });
}

void read_q5_k(Bytes block, GgufGroups& out) {
  read_six_bits(block, out);
  fill_codes(out, 256, [&](int e) {
    const EightCodes fifth = block.eight(16 + e % 32) >> (e / 32) & each(1);
    return block.nibbles(48 + e / 64 * 32, e % 64, 32) | fifth << 4;
  });
}

void read_q6_k(Bytes block, GgufGroups& out) {
  out.scale = block.half(208);
  fill_factors(out.factors, 16, [&](int i) { return block.signed_at(192 + i); });
  fill_codes(out, 256, [&](int e) {
    const int half = e / 128, part = e % 128 / 32, column = e % 32;
    const EightCodes high = block.eight(128 + half * 32 + column) >> (part * 2) & each(3);
    return block.nibbles(half * 64, e % 128, 64) | high << 4;
  });
}

void read_iq4_xs(Bytes block, GgufGroups& out) {
  const unsigned high = block.u16(2);
  out.scale = block.half(0);
  fill_factors(out.factors, 8, [&](int i) {
    const unsigned code = (block[4 + i / 2] >> (i % 2 * 4) & 15U) | (high >> (i * 2) & 3U) << 4;
    return static_cast<int>(code) - 32;
  });
  fill_codes(out, 256, [&](int e) { return block.nibbles(8 + e / 32 * 16, e % 32, 16); });
}

/// Half of 2^(exponent - 127), since levels are twice their numbers.
float half_power(unsigned exponent) {
  constexpr std::uint32_t smallest = 0x00200000U;  // 2^-128
  return std::bit_cast<float>(exponent < 2 ? smallest << exponent : (exponent - 1) << 23);
}

void read_mxfp4(Bytes block, GgufGroups& out) {
  fill_codes(out, 32, [&](int e) { return block.nibbles(1, e, 16); });
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
  fill_codes(out, 64, [&](int e) { return block.nibbles(4 + e / 16 * 8, e % 16, 8); });
}

/// Five levels of -1, 0 and 1 in a byte: digits of a number to the base of three.
void read_tq1_0(Bytes block, GgufGroups& out) {
  static constexpr std::array<unsigned, 5> powers = {1, 3, 9, 27, 81};
  out.scale = block.half(52);
  const auto digits = [](EightCodes bytes, std::size_t digit) {
    constexpr EightCodes every_second = 0x00ff00ff00ff00ffU;
    const auto of_second = [&](EightCodes numbers) {
      return ((numbers & every_second) * powers[digit] & every_second) * 3 >> 8 & every_second;
    };
    return of_second(bytes) | of_second(bytes >> 8) << 8;
  };
  fill_codes(out, 256, [&](int e) {
    if (e < 160) return digits(block.eight(e % 32), static_cast<std::size_t>(e / 32));
    if (e < 240) return digits(block.eight(32 + e % 16), static_cast<std::size_t>((e - 160) / 16));
    const EightCodes four = block.eight(44) >> 32;  // elements 240 to 243 and so on
    const auto digit = static_cast<std::size_t>((e - 240) / 4);
    return digits(four, digit) | digits(four, digit + 1) << 32;
  });
}

void read_tq2_0(Bytes block, GgufGroups& out) {
  out.scale = block.half(64);
  fill_codes(out, 256, [&](int e) {
    return block.eight(e / 128 * 32 + e % 32) >> (e % 128 / 32 * 2) & each(3);
  });
}

void read_q1_0(Bytes block, GgufGroups& out) {
  out.scale = block.half(0);
  fill_codes(out, 128, [&](int e) { return bits_of(block[2 + e / 8]); });
}

void read_q2_0(Bytes block, GgufGroups& out) {
  out.scale = block.half(0);
  fill_codes(out, 64, [&](int e) {
    EightCodes bits = block.u16(2 + e / 4);
    bits = (bits | bits << 24) & 0x000000ff000000ffU;
    bits = (bits | bits << 12) & 0x000f000f000f000fU;
    return (bits | bits << 6) & each(3);
  });
}

using Levels = std::array<std::int8_t, 16>;

constexpr Levels q1_levels = {-1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/// Says how a type is coded; without a group it is none that read_gguf_block() reads.
struct Coding {
  int group = 0;
  int bits = 0;   ///< as gguf_code_bits()
  int least = 0;  ///< the level of code 0, where there is no table of levels
  const Levels* levels = nullptr;
  bool has_mins = false, has_factors = false;
  void (*read)(Bytes, GgufGroups&) = nullptr;
};

constexpr auto codings = [] {
  std::array<Coding, static_cast<std::size_t>(GgufType::q2_0) + 1> all{};
  const auto add = [&](GgufType type, const Coding& coding) {
    all[static_cast<std::size_t>(type)] = coding;
  };
  using enum GgufType;
  add(q4_0, {.group = 32, .bits = 4, .least = -8, .read = read_nibbles<false, false>});
  add(q4_1, {.group = 32, .bits = 4, .has_mins = true, .read = read_nibbles<true, false>});
  add(q5_0, {.group = 32, .bits = 5, .least = -16, .read = read_nibbles<false, true>});
  add(q5_1, {.group = 32, .bits = 5, .has_mins = true, .read = read_nibbles<true, true>});
  add(q8_0, {.group = 32, .bits = 8, .read = read_q8_0});
  add(q2_k, {.group = 16, .bits = 4, .has_mins = true, .has_factors = true, .read = read_q2_k});
  add(q3_k, {.group = 16, .bits = 4, .least = -4, .has_factors = true, .read = read_q3_k});
  add(q4_k, {.group = 32, .bits = 4, .has_mins = true, .has_factors = true, .read = read_q4_k});
  add(q5_k, {.group = 32, .bits = 5, .has_mins = true, .has_factors = true, .read = read_q5_k});
  add(q6_k, {.group = 16, .bits = 6, .least = -32, .has_factors = true, .read = read_q6_k});
  add(iq4_nl, {.group = 32, .bits = 4, .levels = &iq4_levels, .read = read_nibbles<false, false>});
  add(iq4_xs,
      {.group = 32, .bits = 4, .levels = &iq4_levels, .has_factors = true, .read = read_iq4_xs});
  add(mxfp4, {.group = 32, .bits = 4, .levels = &e2m1_levels, .read = read_mxfp4});
  add(nvfp4, {.group = 16, .levels = &e2m1_levels, .read = read_nvfp4});
  add(tq1_0, {.group = 128, .bits = 4, .least = -1, .read = read_tq1_0});
  add(tq2_0, {.group = 128, .bits = 4, .least = -1, .read = read_tq2_0});
  add(q1_0, {.group = 128, .bits = 4, .levels = &q1_levels, .read = read_q1_0});
  add(q2_0, {.group = 64, .bits = 4, .least = -1, .read = read_q2_0});
  return all;
}();

const Coding& coding_of(GgufType type) {
  const auto at = static_cast<std::size_t>(type);
  require(at < codings.size(), "gguf: a known type");
  return codings[at];
}

}  // namespace

int gguf_group(GgufType type) { return coding_of(type).group; }
bool is_gguf_coded(GgufType type) { return gguf_group(type) > 0; }
bool has_gguf_mins(GgufType type) { return coding_of(type).has_mins; }
bool has_gguf_factors(GgufType type) { return coding_of(type).has_factors; }
int gguf_code_bits(GgufType type) { return coding_of(type).bits; }

int gguf_level(GgufType type, unsigned code) {
  const Coding& coding = coding_of(type);
  if (coding.levels != nullptr) return (*coding.levels)[code % 16];
  const int number = static_cast<int>(code % (1U << coding.bits));
  if (coding.bits == 8 && code >= 0x80) return code == 0x80 ? -128 : 128 - number;
  return number + coding.least;
}

void read_stored_block(GgufType type, const std::byte* block, GgufGroups& out) {
  const Coding& coding = coding_of(type);
  require(coding.read != nullptr, "gguf: a type with blocks that are read");
  out.group = coding.group;
  out.has_mins = coding.has_mins;
  coding.read(Bytes(block), out);
}

namespace {

/// gguf_level() of all codes.
const std::array<std::int8_t, 256>& levels_of(GgufType type) {
  using Tables = std::array<std::array<std::int8_t, 256>, codings.size()>;
  static const Tables all = [] {
    Tables made;
    for (std::size_t t = 0; t < made.size(); ++t) {
      for (unsigned code = 0; code < 256; ++code) {
        made[t][code] = static_cast<std::int8_t>(gguf_level(static_cast<GgufType>(t), code));
      }
    }
    return made;
  }();
  return all[static_cast<std::size_t>(type)];
}

}  // namespace

void read_gguf_block(GgufType type, const std::byte* block, GgufGroups& out) {
  read_stored_block(type, block, out);
  const bool has_factors = has_gguf_factors(type);
  const Bytes bytes(block);
  for (int i = 0;
       i * out.group < static_cast<int>(gguf_block(static_cast<std::uint32_t>(type))->elements);
       ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (type == GgufType::mxfp4 || type == GgufType::nvfp4) {
      out.scales[at] = type == GgufType::mxfp4 ? half_power(bytes[0]) : half_ue4m3(bytes[i]);
      continue;
    }
    out.scales[at] = to_float(out.scale) * (has_factors ? static_cast<float>(out.factors[at]) : 1);
    if (!out.has_mins) continue;
    out.mins[at] = to_float(out.min) * (has_factors ? static_cast<float>(out.min_factors[at]) : 1);
  }
}

void read_gguf_values(GgufType type, const std::byte* blocks, std::span<float> out) {
  const GgufBlock& block = *gguf_block(static_cast<std::uint32_t>(type));
  require(out.size() % block.elements == 0, "gguf: whole blocks");
  const std::array<std::int8_t, 256>& levels = levels_of(type);
  GgufGroups groups;
  for (; !out.empty(); out = out.subspan(block.elements), blocks += block.bytes) {
    read_gguf_block(type, blocks, groups);
    for (std::size_t e = 0; e < block.elements; ++e) {
      const std::size_t i = e / static_cast<std::size_t>(groups.group);
      const float product = groups.scales[i] * static_cast<float>(levels[groups.code(e)]);
      out[e] = groups.has_mins ? product - groups.mins[i] : product;
    }
  }
}

}  // namespace hyb::kernels
