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
namespace hyb::kernels::testing {

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

}  // namespace hyb::kernels::testing

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
          if (op == 2 && lane - distance >= begin) from = lane - distance;
          if (op >= 3 && lane + distance < end) from = lane + distance;
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
      out.insert(out.end(), {ballot, ballot != 0 ? 1U : 0U, ballot == mask ? 1U : 0U, equal, sum,
                             least, most, values[std::countr_zero(mask)]});
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
          expected.insert(expected.end(), {count > 0, count == block_threads, count});
        }
      }
      CHECK(answer_of(block_votes, votes, 3 * vote_rounds * block_threads) == expected);

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
      for (const int matrices : {4, 2}) {
        for (int m = 0; m < matrices; ++m) {
          expected.push_back(element(m, row, column) | element(m, row, column + 1) << 16);
        }
        for (int m = 0; m < matrices; ++m) {
          expected.push_back(element(m, column, row) | element(m, column + 1, row) << 16);
        }
      }
    }
    CHECK(answer_of(matrix_loads, in, 12 * 32) == expected);
  }
}

// matrix products

/// What an element of this kind keeps of an f32 that f16 has no exponent too many for.
float kept(Mma mma, float value) {
  return as_float(as_bits(value) & (mma == Mma::bf16 ? 0xffff0000U : 0xffffe000U));
}
U32 encoded(Mma mma, float value) {
  const U32 bits = as_bits(value);
  if (mma == Mma::tf32) return bits;
  if (mma == Mma::bf16) return bits >> 16;
  if (value == 0.0F) return 0;
  return (bits >> 16 & 0x8000U) | ((bits >> 23 & 0xffU) - 112U) << 10 | (bits >> 13 & 0x3ffU);
}

struct Product {
  Mma mma;
  int depth;
  std::vector<float> a, b, c;  // 16 x depth, depth x 8, 16 x 8

  /// The words of a lane: a, b, c as the PTX manual's figures of the fragments have them.
  Array fragments() const {
    const int pair = mma == Mma::tf32 ? 1 : 2;  // elements to a register
    Array words;
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4, column = lane % 4 * pair;
      for (int i = 0; i < 4; ++i) {
        U32 word = 0;
        for (int e = 0; e < pair; ++e) {
          const int k = column + i / 2 * 4 * pair + e;
          word |= encoded(mma, at(a, (group + i % 2 * 8) * depth + k)) << 16 * e;
        }
        words.push_back(word);
      }
      for (int i = 0; i < 2; ++i) {
        U32 word = 0;
        for (int e = 0; e < pair; ++e) {
          word |= encoded(mma, at(b, (column + i * 4 * pair + e) * 8 + group)) << 16 * e;
        }
        words.push_back(word);
      }
      for (int i = 0; i < 4; ++i) words.push_back(as_bits(at(c, place_of(lane, i))));
    }
    return words;
  }
  static int place_of(int lane, int i) { return (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2; }
};

Product product_of(Mma mma, unsigned seed, bool integers) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> whole(-8, 8);
  std::uniform_real_distribution<float> real(-2.0F, 2.0F);
  const auto fill = [&](int count, bool exact) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
      value = integers ? static_cast<float>(whole(random)) : real(random);
      if (!integers && std::fabs(value) < 0.01F) value = 0.5F;  // f16's exponents end
      if (!exact) value = kept(mma, value);
    }
    return values;
  };
  const int depth = mma == Mma::tf32 ? 8 : 16;
  auto a = fill(16 * depth, false), b = fill(8 * depth, false), c = fill(16 * 8, true);
  return {mma, depth, std::move(a), std::move(b), std::move(c)};
}

/// Integers exactly; other numbers within what `depth` + 1 truncated sums of 24 bits may lose.
void check_product(const Product& product, bool integers) {
  CAPTURE(static_cast<int>(product.mma));
  const Array answer = answer_of(
      [&](cuda::Stream& stream, const Words& words) { matrix_product(stream, product.mma, words); },
      product.fragments(), 4 * 32);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int place = Product::place_of(lane, i);
      double sum = at(product.c, place), mass = std::fabs(sum);
      for (int k = 0; k < product.depth; ++k) {
        const double term =
            double{at(product.a, place / 8 * product.depth + k)} * at(product.b, k * 8 + place % 8);
        sum += term;
        mass += std::fabs(term);
      }
      const double bound = integers ? 0.0 : (product.depth + 1) * 0x1p-23 * mass;
      CHECK(std::fabs(as_float(at(answer, 4 * lane + i)) - sum) <= bound);
    }
  }
}

TEST_SUITE("cuda/conformance") {
  TEST_CASE("matrix products") {
    for (const Mma mma : {Mma::bf16, Mma::f16, Mma::tf32}) {
      for (unsigned seed = 0; seed < 3; ++seed) {
        check_product(product_of(mma, seed, true), true);
        check_product(product_of(mma, seed, false), false);
      }
    }
  }
}

}  // namespace

/// The same for what happens between blocks and kernels, and for numbers.
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

  // Adding gave every number once, exchanging what another thread had put there.
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
