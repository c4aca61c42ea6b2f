#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cuda/conformance_kernels.h"
#include "tests/cuda/support.h"

/// Words there and back, for the tests of conformance_kernels.h.
namespace hyb::kernels::testing::conformance_test {

using U32 = std::uint32_t;
using Array = std::vector<U32>;
using Run = std::function<void(cuda::Stream&, const Words&)>;

template <typename Container>
auto& at(Container& words, int i) {
  return words[static_cast<std::size_t>(i)];
}
inline float as_float(U32 bits) { return std::bit_cast<float>(bits); }
inline U32 as_bits(float value) { return std::bit_cast<U32>(value); }

/// What `run` makes of `out`. Nothing is written past it, nor to what is read.
inline Array answer_of(const Run& run, const Array& in, Array out) {
  constexpr U32 guard = 0xdeadbeef;
  constexpr std::size_t guard_words = 64;
  const std::size_t count = out.size();
  out.resize(count + guard_words, guard);
  const DeviceTable on_in({in.begin(), in.end()}), on_out({out.begin(), out.end()});
  cuda::Stream stream;
  run(stream, {static_cast<U32*>(Tensor(on_in).data), static_cast<U32*>(Tensor(on_out).data)});
  stream.wait();
  const auto fetched = on_out.fetch(), read = on_in.fetch();
  CHECK(Array(read.begin(), read.end()) == in);
  const auto end = fetched.begin() + static_cast<std::ptrdiff_t>(count);
  CHECK(Array(end, fetched.end()) == Array(guard_words, guard));
  return {fetched.begin(), end};
}
inline Array answer_of(const Run& run, const Array& in, int out_words) {
  return answer_of(run, in, Array(static_cast<std::size_t>(out_words), 0));
}

inline Array random_words(int count, unsigned seed, U32 largest = std::numeric_limits<U32>::max()) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<U32> pick(0, largest);
  Array words(static_cast<std::size_t>(count));
  for (U32& word : words) word = pick(random);
  return words;
}

using namespace hyb::kernels;
using namespace hyb::kernels::testing;

/// The contracts of kernels/cuda/ptx.h, word by word against plain C++. The same test holds the
/// emulator and the card, so one can replace the other.
namespace {

// warps

Array expected_shuffles(const Array& in) {
  Array out;
  for (int bits = smallest_width_bits; bits <= 5; ++bits) {
    const int width = 1 << bits;
    for (int k = 0; k < shuffle_distances; ++k) {
      const int distance = static_cast<int>(at(in, 32 + k));
      for (int op = 0; op < shuffle_ops; ++op) {
        for (int lane = 0; lane < 32; ++lane) {
          const int begin = lane / width * width, end = begin + width;
          int from = lane;
          if (op == 0) from = begin + (distance + 3 * lane) % width;
          if (op == 1 && (lane ^ distance) < end) from = lane ^ distance;
          if (op >= 2 && lane - distance >= begin) from = lane - distance;
          out.push_back(at(in, from));
        }
      }
    }
  }
  return out;
}

Array expected_collectives(const Array& in) {
  Array out;
  for (int c = 0; c < mask_cases; ++c) {
    const U32* const values = &at(in, mask_cases + 32 * c);
    const U32* const votes = values + 32 * mask_cases;
    for (int lane = 0; lane < 32; ++lane) {
      const U32 mask = (at(in, c) >> lane & 1U) != 0 ? at(in, c) : ~at(in, c);
      U32 ballot = 0, equal = 0, sum = 0, least = ~0U, most = 0;
      for (int i = 0; i < 32; ++i) {
        if ((mask >> i & 1U) == 0) continue;
        if (votes[i] != 0) ballot |= 1U << i;
        if (values[i] == values[lane]) equal |= 1U << i;
        sum += values[i];
        least = std::min(least, values[i]);
        most = std::max(most, values[i]);
      }
      out.insert(out.end(), {ballot, ballot != 0 ? 1U : 0U, equal, sum, least, most,
                             values[std::countr_zero(mask)]});
    }
  }
  return out;
}

TEST_SUITE("cuda/conformance") {
  TEST_CASE("votes and named barriers") {
    in_every_schedule([](const std::string& schedule) {
      CAPTURE(schedule);
      Array votes = random_words(vote_rounds * block_threads, 1, 1);
      std::fill_n(votes.begin(), block_threads, 0);
      std::fill_n(votes.begin() + block_threads, block_threads, 1);
      at(votes, 2 * block_threads + 77) = 0;
      Array expected;
      for (int round = 0; round < vote_rounds; ++round) {
        const auto begin = votes.begin() + round * block_threads;
        const auto count = static_cast<U32>(std::count(begin, begin + block_threads, 1U));
        for (int i = 0; i < block_threads; ++i) {
          expected.insert(expected.end(), {count > 0, count});
        }
      }
      CHECK(answer_of(block_votes, votes, 2 * vote_rounds * block_threads) == expected);

      const Array given = random_words(giving_rounds * half_threads, 2);
      Array taken;
      for (int i = 0; i < giving_rounds * half_threads; ++i) {
        const int t = (i % half_threads + 32) % half_threads;
        taken.push_back(at(given, i / half_threads * half_threads + half_threads - 1 - t) + 1);
      }
      CHECK(answer_of(named_barriers, given, giving_rounds * half_threads) == taken);
    });
  }

  TEST_CASE("shuffles in segments of every width") {
    Array in = random_words(32, 3, 1 << 20);
    for (const U32 distance : {0, 1, 2, 3, 5, 8, 17, 31}) in.push_back(distance);
    const Array expected = expected_shuffles(in);
    CHECK(answer_of(shuffles, in, static_cast<int>(expected.size())) == expected);
  }

  TEST_CASE("collectives of the lanes of a mask, while the others do the same separately") {
    in_every_schedule([](const std::string& schedule) {
      CAPTURE(schedule);
      Array in = {0xffffffff, 0x55555555, 0x0000ffff, 0x80000000, 0x7fffffff, 0x12345678};
      const Array values = random_words(32 * mask_cases, 4, 9);
      Array votes = random_words(32 * mask_cases, 5, 1);
      std::fill_n(votes.begin(), 48, 1);  // all, in the first mask and half of the second
      in.insert(in.end(), values.begin(), values.end());
      in.insert(in.end(), votes.begin(), votes.end());
      const Array expected = expected_collectives(in);
      CHECK(answer_of(masked_collectives, in, static_cast<int>(expected.size())) == expected);
    });
  }

  TEST_CASE("asynchronous copies of 16, 8 and 4 bytes, zeros where there is nothing") {
    in_every_schedule([](const std::string& schedule) {
      CAPTURE(schedule);
      Array in = random_words(7 * copies, 6);
      const Array is_there = random_words(copies, 7, 3);
      in.insert(in.end(), is_there.begin(), is_there.end());
      Array expected(static_cast<std::size_t>(7 * copies));
      for (int i = 0; i < copies; ++i) {
        const int stage = i / half_threads * half_threads;
        const int other = stage + (i % half_threads + 33) % half_threads;
        const U32 factor = at(is_there, other) != 0 ? 1 : 0;
        for (int j = 0; j < 4; ++j) at(expected, 4 * i + j) = factor * at(in, 4 * other + j);
        for (int j = 0; j < 2; ++j) {
          at(expected, 4 * copies + 2 * i + j) = factor * at(in, 4 * copies + 2 * other + j);
        }
        at(expected, 6 * copies + i) = factor * at(in, 6 * copies + other);
      }
      CHECK(answer_of(async_copies, in, 7 * copies) == expected);
    });
  }

  TEST_CASE("vectors are loaded and stored whole") {
    const Array in = random_words(4 * half_threads, 8);
    Array expected;
    for (int i = 0; i < 3; ++i) expected.insert(expected.end(), in.begin(), in.end());
    CHECK(answer_of(vector_copies, in, 12 * half_threads) == expected);
  }

  TEST_CASE("matrices are loaded as they are and transposed") {
    const Array in = random_words(4 * 32, 9);
    const auto element = [&](int matrix, int row, int column) {
      const int stored = (5 * (8 * matrix + row) + 3) % 32;
      return at(in, 4 * stored + column / 2) >> 16 * (column % 2) & 0xffffU;
    };
    Array expected;
    for (int lane = 0; lane < 32; ++lane) {
      const int row = lane / 4, column = 2 * (lane % 4);
      for (int m = 0; m < 4; ++m) {
        expected.push_back(element(m, row, column) | element(m, row, column + 1) << 16);
      }
      for (int m = 0; m < 4; ++m) {
        expected.push_back(element(m, column, row) | element(m, column + 1, row) << 16);
      }
    }
    CHECK(answer_of(matrix_loads, in, 8 * 32) == expected);
  }
}

// matrix products

constexpr int depth = 16;

struct Product {
  std::vector<float> a, b, c;  // 16 x depth, depth x 8, 16 x 8; a and b of bf16

  /// The words of a lane: a, b, c as the PTX manual's figures of the fragments have them.
  Array fragments() const {
    Array words;
    const auto pair = [](float low, float high) { return as_bits(low) >> 16 | as_bits(high); };
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4, column = lane % 4 * 2;
      for (int i = 0; i < 4; ++i) {
        const int place = (group + i % 2 * 8) * depth + column + i / 2 * 8;
        words.push_back(pair(at(a, place), at(a, place + 1)));
      }
      for (int i = 0; i < 2; ++i) {
        const int place = (column + i * 8) * 8 + group;
        words.push_back(pair(at(b, place), at(b, place + 8)));
      }
      for (int i = 0; i < 4; ++i) words.push_back(as_bits(at(c, place_of(lane, i))));
    }
    return words;
  }
  static int place_of(int lane, int i) { return (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2; }
};

Product random_product(unsigned seed, bool integers) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> whole(-8, 8);
  std::uniform_real_distribution<float> real(-2.0F, 2.0F);
  const auto fill = [&](int count, bool is_bf16) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
      value = integers ? static_cast<float>(whole(random)) : real(random);
      if (is_bf16) value = as_float(as_bits(value) & 0xffff0000U);
    }
    return values;
  };
  auto a = fill(16 * depth, true), b = fill(8 * depth, true), c = fill(16 * 8, false);
  return {std::move(a), std::move(b), std::move(c)};
}

/// Integers exactly; other numbers within what `depth` + 1 truncated sums of 24 bits may lose.
void check_product(const Product& product, bool integers) {
  const Array answer = answer_of(matrix_product, product.fragments(), 4 * 32);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int place = Product::place_of(lane, i);
      double sum = at(product.c, place), mass = std::fabs(sum);
      for (int k = 0; k < depth; ++k) {
        const double term =
            double{at(product.a, place / 8 * depth + k)} * at(product.b, k * 8 + place % 8);
        sum += term;
        mass += std::fabs(term);
      }
      const double bound = integers ? 0.0 : (depth + 1) * 0x1p-23 * mass;
      CHECK(std::fabs(as_float(at(answer, 4 * lane + i)) - sum) <= bound);
    }
  }
}

TEST_SUITE("cuda/conformance") {
  TEST_CASE("matrix products") {
    for (unsigned seed = 0; seed < 3; ++seed) {
      check_product(random_product(seed, true), true);
      check_product(random_product(seed, false), false);
    }
  }
}

}  // namespace

/// The same for what happens between blocks and kernels, and for numbers.
namespace {

void check_atomics() {
  const Array in = random_words(grid_count, 11);
  const Array answer = answer_of(atomics, in, atomic_words + grid_count);
  const U32 sum = std::accumulate(in.begin(), in.end(), 0U);
  CHECK(at(answer, 0) == sum);
  CHECK(at(answer, 1) == std::accumulate(in.begin(), in.end(), 0U, std::bit_or<>()));
  CHECK(at(answer, 2) == sum);
  CHECK(at(answer, 3) == grid_count);
  const auto wide = std::accumulate(in.begin(), in.end(), std::uint64_t{grid_count} << 32);
  CHECK((at(answer, 4) | std::uint64_t{at(answer, 5)} << 32) == wide);

  // Adding 1 gave every number once.
  Array counts(answer.begin() + atomic_words, answer.end()), numbered(grid_count);
  std::sort(counts.begin(), counts.end());
  std::iota(numbered.begin(), numbered.end(), 0U);
  CHECK(counts == numbered);
}

void check_messages() {
  const Array in = random_words(grid_count, 13);
  Array expected(grid_count + grid_blocks + 2, 0);
  U32* const sums = &at(expected, grid_count);
  for (int i = 0; i < grid_count; ++i) {
    at(expected, i) = at(in, i);
    sums[i / half_threads] += at(expected, i);
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
  TEST_CASE("atomics, messages between blocks, early starts") {
    in_every_schedule([](const std::string& schedule) {
      CAPTURE(schedule);
      check_atomics();
      check_messages();
      check_early_chain();
    });
  }

  TEST_CASE("bytes are picked and extended, pairs of bf16 multiplied, denormal ones too") {
    Array in = random_words(3 * 900, 21);
    for (int i = 0; i < 900; ++i) {
      at(in, 3 * i + 2) &= 0x7777U;
      if (i % 3 == 0) at(in, 3 * i) &= 0x807f807fU;
      if (i % 3 == 0) at(in, 3 * i + 1) = (at(in, 3 * i + 1) & 0x807f807fU) | 0x7b007b00U;
    }
    const Array answer =
        answer_of([](cuda::Stream& stream, const Words& w) { pairs_of(stream, w, 900); }, in, 3600);
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
        CHECK((at(answer, 4 * i) >> 8 * byte & 0xffU) == expected);
        const U32 own = a >> 8 * byte & 0xffU, extended = own < 0x80U ? own : own | 0xff00U;
        CHECK((at(answer, 4 * i + 2 + byte / 2) >> 16 * (byte % 2) & 0xffffU) == extended);
      }
      for (const int half : {0, 16}) {
        const double exact = number(a >> half & 0xffffU) * number(b >> half & 0xffffU);
        const float got = as_float(at(answer, 4 * i + 1) >> half << 16);
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

  TEST_CASE("exponentials, quotients and products within their bounds") {
    const Array pairs = random_pairs(1000, 16, -60.0F, 60.0F);
    const Numbers answer(pairs);
    for (int i = 0; i < answer.count; ++i) {
      const float a = as_float(at(pairs, 2 * i)), b = as_float(at(pairs, 2 * i + 1));
      CAPTURE(a);
      CAPTURE(b);
      CHECK(units(answer.value(i, 2), std::exp(double{a})) <= 2.0 + 1.173 * std::fabs(a));
      CHECK(units(answer.value(i, 3), std::exp2(double{a})) <= 2.0);
      CHECK(units(answer.value(i, 4), double{a} / b) <= 2.0);
      CHECK(answer.value(i, 7) == static_cast<float>(double{a} * b) + a);  // one product is exact
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
        CHECK(std::fabs(answer.value(i, 5) - std::sin(angle)) <= 0x1p-23);
        CHECK(std::fabs(answer.value(i, 6) - std::cos(angle)) <= 0x1p-23);
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
    CHECK(std::isnan(answer.value(2, 4)));
    CHECK(units(answer.value(4, 4), 3.0 * 0x1p-126) <= 2.0);
    CHECK(answer.value(7, 4) == 0.0F);
  }
}

}  // namespace

}  // namespace hyb::kernels::testing::conformance_test
