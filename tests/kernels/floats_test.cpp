#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include "kernels/floats.h"
#include "tests/kernels/support.h"

namespace floats_test {

using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// From the format's definition.
double number_of(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return NAN;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code >= 128 ? -size : size;
}

/// The nearest of all codes of the same sign, of two the even one: by trying them.
int nearest_code(double value) {
  const int sign = std::signbit(value) ? 128 : 0;
  if (std::isnan(value)) return sign + 127;
  if (std::isinf(value)) return sign + 126;
  int best = 0;
  for (int code = 1; code < 127; ++code) {
    const double distance = std::fabs(std::fabs(value) - number_of(code));
    const double least = std::fabs(std::fabs(value) - number_of(best));
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return sign + best;
}

TEST_SUITE("kernels/fp8") {
  TEST_CASE("every code is the format's number, and is what this is rounded to") {
    for (int code = 0; code < 256; ++code) {
      const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
      const double expected = number_of(code);
      CHECK(std::isnan(value) == std::isnan(expected));
      if (!std::isnan(expected)) CHECK(double{value} == expected);
      CHECK(std::signbit(value) == (code >= 128));
      CHECK(to_e4m3(value).bits == code);
      CHECK(std::bit_cast<std::uint32_t>(to_float(e4m3{static_cast<std::uint8_t>(code)})) ==
            std::bit_cast<std::uint32_t>(value));
    }
    CHECK(to_float(to_e4m3(448.0F)) == 448.0F);
  }

  TEST_CASE("every bf16 becomes the nearest code, ties the even one, too large ones 448") {
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const float value = to_float(bf16{static_cast<std::uint16_t>(bits)});
      REQUIRE(to_e4m3(value).bits == nearest_code(value));
      REQUIRE(from_float<e4m3>(value).bits == to_e4m3(value).bits);
    }
  }

  TEST_CASE("so does every f32 between two codes, and whatever the bits are") {
    for (int code = 0; code < 126; ++code) {
      const double middle = (number_of(code) + number_of(code + 1)) / 2;
      const auto half = static_cast<float>(middle);
      REQUIRE(double{half} == middle);
      for (const float value : {half, std::nextafter(half, 0.0F), std::nextafter(half, 1e9F)}) {
        REQUIRE(to_e4m3(value).bits == nearest_code(value));
        REQUIRE(to_e4m3(-value).bits == nearest_code(-value));
      }
    }
    std::mt19937 engine(2);
    for (int i = 0; i < 20000; ++i) {
      const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(engine()));
      REQUIRE(to_e4m3(value).bits == nearest_code(value));
    }
    for (const float value : {448.0F, 463.0F, 464.0F, 465.0F, 480.0F, 1e30F, INFINITY}) {
      CHECK(to_e4m3(value).bits == 0x7e);
      CHECK(to_e4m3(-value).bits == 0xfe);
    }
  }
}

TEST_SUITE("kernels/f16") {
  TEST_CASE(
      "every f16 is what it is rounded to, and so is all that is nearer to it than to others") {
    for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
      const float value = to_float(f16{static_cast<std::uint16_t>(bits)});
      const float next =
          bits == 0x7bff ? 65536.0F : to_float(f16{static_cast<std::uint16_t>(bits + 1)});
      const float middle = (value + next) / 2;  // exact: an f32 has more digits
      const std::uint32_t even = bits + bits % 2;
      REQUIRE(to_f16(value).bits == bits);
      REQUIRE(to_f16(-value).bits == (bits | 0x8000U));
      REQUIRE(to_f16(std::nextafter(middle, 0.0F)).bits == bits);
      REQUIRE(to_f16(middle).bits == even);
      REQUIRE(to_f16(std::nextafter(middle, 1e9F)).bits == bits + 1);
    }
  }

  TEST_CASE("what is too large is infinity, and NaN stays NaN") {
    for (const float value : {65520.0F, 65536.0F, 1e30F, INFINITY}) {
      CHECK(to_f16(value).bits == 0x7c00);
      CHECK(to_f16(-value).bits == 0xfc00);
    }
    CHECK(std::isnan(to_float(to_f16(NAN))));
    CHECK(to_f16(0x1p-25F).bits == 0);
    CHECK(to_f16(1e-30F).bits == 0);
  }
}

}  // namespace

}  // namespace floats_test
