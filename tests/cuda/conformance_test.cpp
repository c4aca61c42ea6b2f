#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/cuda/conformance_support.h"

using namespace hyb::kernels;
using namespace hyb::kernels::testing;

/// The contracts of kernels/cuda/ptx.h, word by word against plain C++. The same test holds the
/// emulator and the card, so the one stands for the other.
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

  TEST_CASE("collectives of the lanes of a mask, while the others meet apart") {
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
