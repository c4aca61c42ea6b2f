#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/cuda/conformance_support.h"

using namespace hyb::kernels;
using namespace hyb::kernels::testing;

/// The same as conformance_test.cpp for what goes on between blocks and kernels, and for numbers.
namespace {

void check_atomics() {
  const Array in = random_words(grid_count, 11);
  Array out(atomic_words + 2 * grid_count, 0);
  at(out, 1) = ~0U;
  at(out, 4) = 0x7fffffff;
  at(out, 5) = 0x80000000;
  at(out, 12) = 12345;
  const Array answer = answer_of(atomics, in, out);
  const U32 sum = std::accumulate(in.begin(), in.end(), 0U);
  const auto by_sign = [](U32 a, U32 b) { return static_cast<int>(a) < static_cast<int>(b); };
  CHECK(at(answer, 0) == sum);
  CHECK(at(answer, 1) == *std::min_element(in.begin(), in.end()));
  CHECK(at(answer, 2) == *std::max_element(in.begin(), in.end()));
  CHECK(at(answer, 3) == std::accumulate(in.begin(), in.end(), 0U, std::bit_or<>()));
  CHECK(at(answer, 4) == *std::min_element(in.begin(), in.end(), by_sign));
  CHECK(at(answer, 5) == *std::max_element(in.begin(), in.end(), by_sign));
  CHECK(at(answer, 6) == sum);
  const auto wide = std::accumulate(in.begin(), in.end(), std::uint64_t{grid_count} << 32);
  CHECK((at(answer, 8) | std::uint64_t{at(answer, 9)} << 32) == wide);
  CHECK(at(answer, 10) == std::accumulate(in.begin(), in.end(), 0U, std::bit_xor<>()));
  CHECK(at(answer, 11) == grid_count);

  // Adding gave every number once, exchanging what somebody had put there.
  const auto tickets_end = answer.begin() + atomic_words + grid_count;
  Array tickets(answer.begin() + atomic_words, tickets_end), numbered(grid_count);
  std::sort(tickets.begin(), tickets.end());
  std::iota(numbered.begin(), numbered.end(), 0U);
  CHECK(tickets == numbered);
  Array exchanged(tickets_end, answer.end()), put = in;
  exchanged.push_back(at(answer, 12));
  put.push_back(12345);
  std::sort(exchanged.begin(), exchanged.end());
  std::sort(put.begin(), put.end());
  CHECK(exchanged == put);
}

void check_grid_rounds() {
  const Array in = random_words(grid_count, 12);
  Array sides[2] = {in, Array(grid_count, 0)};
  for (int round = 0; round < grid_rounds; ++round) {
    const Array& from = sides[round % 2];
    for (int i = 0; i < grid_count; ++i) {
      at(sides[(round + 1) % 2], i) =
          3 * at(from, (i + half_threads + 1) % grid_count) + static_cast<U32>(round);
    }
  }
  Array expected = sides[0];
  expected.insert(expected.end(), sides[1].begin(), sides[1].end());
  CHECK(answer_of(grid_rounds_of, in, 2 * grid_count) == expected);
}

void check_messages() {
  const Array in = random_words(grid_count, 13);
  Array expected(2 * grid_count + grid_blocks + 2, 0);
  U32* const sums = &at(expected, 2 * grid_count);
  for (int i = 0; i < grid_count; ++i) {
    const int block = i / half_threads;
    const int other = (block - 1) * half_threads + half_threads - 1 - i % half_threads;
    at(expected, i) = at(in, i) + (block > 0 ? 3 * at(expected, other) : 0);
    at(expected, grid_count + i) = 1;
    sums[block] += at(expected, i);
    sums[grid_blocks] += at(expected, i);
  }
  sums[grid_blocks + 1] = grid_blocks;
  CHECK(answer_of(messages, in, static_cast<int>(expected.size())) == expected);
}

void check_early_chain() {
  const Array in = random_words(2 * grid_count, 14);
  Array expected(3 * grid_count, 0);
  Array from(in.begin(), in.begin() + grid_count);
  for (int k = 0; k < chain_length; ++k) {
    Array to;
    for (int i = 0; i < grid_count; ++i) {
      to.push_back(3 * at(from, (i + half_threads) % grid_count) + at(in, grid_count + i));
    }
    std::copy(to.begin(), to.end(), expected.begin() + k % 3 * grid_count);
    from = to;
  }
  CHECK(answer_of(early_chain, in, 3 * grid_count) == expected);
}

/// The numbers kernel's words of each pair.
struct Numbers {
  explicit Numbers(const Array& pairs) : count(static_cast<int>(pairs.size()) / 2) {
    words = answer_of([&](cuda::Stream& stream, const Words& w) { numbers(stream, w, count); },
                      pairs, number_words * count);
  }
  U32 bits(int i, int word) const { return at(words, number_words * i + word); }
  float value(int i, int word) const { return as_float(bits(i, word)); }

  int count;
  Array words;
};

/// How many units in the last place of the exact answer, of normal size, this is away from it.
double units(float answer, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::fabs(answer - exact) / unit;
}

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

Array random_pairs(int count, unsigned seed, float low, float high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> pick(low, high);
  Array pairs;
  for (int i = 0; i < 2 * count; ++i) pairs.push_back(as_bits(pick(random)));
  return pairs;
}

TEST_SUITE("cuda/conformance") {
  TEST_CASE("atomics, grids in step, messages between blocks, early starts") {
    in_every_schedule([](const std::string& schedule) {
      CAPTURE(schedule);
      check_atomics();
      check_grid_rounds();
      check_messages();
      check_early_chain();
    });
  }

  TEST_CASE("bytes are picked, pairs of bf16 multiplied, denormal ones too") {
    Array in = random_words(3 * 900, 21);
    for (int i = 0; i < 900; ++i) {
      at(in, 3 * i + 2) &= 0x7777U;
      if (i % 3 == 0) at(in, 3 * i) &= 0x807f807fU;
      if (i % 3 == 0) at(in, 3 * i + 1) = (at(in, 3 * i + 1) & 0x807f807fU) | 0x7b007b00U;
    }
    const Array answer =
        answer_of([](cuda::Stream& stream, const Words& w) { pairs_of(stream, w, 900); }, in, 1800);
    const auto number = [](U32 bits) {  // of a bf16, on any host
      const double size = (bits & 0x7f80U) == 0 ? (bits & 0x7fU) * 0x1p-133
                                                : double{as_float((bits & 0x7fffU) << 16)};
      return (bits & 0x8000U) != 0 ? -size : size;
    };
    int products = 0;
    for (int i = 0; i < 900; ++i) {
      const U32 a = at(in, 3 * i), b = at(in, 3 * i + 1), selector = at(in, 3 * i + 2);
      for (int byte = 0; byte < 4; ++byte) {
        const U32 from = selector >> 4 * byte & 7U;
        const U32 expected = (from < 4 ? a >> 8 * from : b >> 8 * (from - 4)) & 0xffU;
        CHECK((at(answer, 2 * i) >> 8 * byte & 0xffU) == expected);
      }
      for (const int half : {0, 16}) {
        const double exact = number(a >> half & 0xffffU) * number(b >> half & 0xffffU);
        const float got = as_float(at(answer, 2 * i + 1) >> half << 16);
        if (std::isnan(exact)) CHECK(std::isnan(got));
        if (std::isnan(exact) || (std::fabs(exact) < 0x1p-125 && exact != 0)) continue;
        CHECK(as_bits(got) == as_bits(to_float(to_bf16(static_cast<float>(exact)))));
        ++products;
      }
    }
    CHECK(products > 900);
  }

  TEST_CASE("bf16 is rounded as to_bf16 does, whatever the bits are") {
    Array pairs = random_words(1000, 15);
    for (const U32 sign : {0U, 0x80000000U}) {
      for (const U32 upper : {0U, 1U, 0x7fU, 0x80U, 0x3f80U, 0x3f81U, 0x7f7fU, 0x7f80U, 0x7fffU}) {
        for (const U32 lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
          pairs.push_back(sign | upper << 16 | lower);
        }
      }
    }
    const Numbers answer(pairs);
    for (int i = 0; i < answer.count; ++i) {
      const U32 packed = answer.bits(i, 0);
      CHECK(answer.bits(i, 1) == (packed & 0xffffU));
      for (int half = 0; half < 2; ++half) {
        const float value = as_float(at(pairs, 2 * i + half));
        const bf16 rounded{static_cast<std::uint16_t>(packed >> 16 * half)};
        CAPTURE(at(pairs, 2 * i + half));
        if (std::isnan(value)) {
          CHECK(std::isnan(to_float(rounded)));
        } else {
          CHECK(rounded.bits == to_bf16(value).bits);
        }
      }
    }
  }

  TEST_CASE("exponentials, roots, quotients and products within their bounds") {
    const Array pairs = random_pairs(1000, 16, -60.0F, 60.0F);
    const Numbers answer(pairs);
    for (int i = 0; i < answer.count; ++i) {
      const float a = as_float(at(pairs, 2 * i)), b = as_float(at(pairs, 2 * i + 1));
      CAPTURE(a);
      CAPTURE(b);
      CHECK(units(answer.value(i, 2), std::exp(double{a})) <= 2.0 + 1.173 * std::fabs(a));
      CHECK(units(answer.value(i, 3), std::exp2(double{a})) <= 2.0);
      if (a > 0.0F) CHECK(units(answer.value(i, 4), 1.0 / std::sqrt(double{a})) <= 2.0);
      CHECK(units(answer.value(i, 5), double{a} / b) <= 2.0);
      CHECK(answer.value(i, 8) == static_cast<float>(double{a} * b) + a);  // one product is exact
      CHECK(answer.bits(i, 9) == 1);
    }
  }

  TEST_CASE("a turn's sine and cosine within 2^-23") {
    for (const float range : {0.01F, 1.0F, 4000.0F}) {
      const Array pairs = random_pairs(300, 17, -range, range);
      const Numbers answer(pairs);
      for (int i = 0; i < answer.count; ++i) {
        const double turns = as_float(at(pairs, 2 * i));
        const double angle = 6.283185307179586477 * (turns - std::nearbyint(turns));
        CAPTURE(turns);
        CHECK(std::fabs(answer.value(i, 6) - std::sin(angle)) <= 0x1p-23);
        CHECK(std::fabs(answer.value(i, 7) - std::cos(angle)) <= 0x1p-23);
      }
    }
  }

  TEST_CASE("numbers at the ends of their ranges") {
    const float as[] = {-infinity, infinity, not_a_number, 0.0F, 3.0F, -200.0F, 200.0F, 1.5F};
    const float bs[] = {2.0F, 2.0F, 2.0F, 2.0F, 0x1p126F, 2.0F, 2.0F, 0x1.8p127F};
    Array pairs;
    for (int i = 0; i < 8; ++i) pairs.insert(pairs.end(), {as_bits(as[i]), as_bits(bs[i])});
    const Numbers answer(pairs);
    for (const int word : {2, 3}) {
      CHECK(answer.value(0, word) == 0.0F);
      CHECK(answer.value(1, word) == infinity);
      CHECK(std::isnan(answer.value(2, word)));
      CHECK(answer.value(3, word) == 1.0F);
      CHECK(answer.value(5, word) == 0.0F);
      CHECK(answer.value(6, word) == infinity);
    }
    CHECK(answer.value(1, 4) == 0.0F);
    CHECK(answer.value(3, 4) == infinity);
    CHECK(std::isnan(answer.value(2, 5)));
    CHECK(units(answer.value(4, 5), 3.0 * 0x1p-126) <= 2.0);
    CHECK(answer.value(7, 5) == 0.0F);
  }
}

}  // namespace
