#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/ops/sample_steps.h"

namespace sample_steps_test {

using namespace hyb::kernels;

namespace {

TEST_SUITE("kernels/ops/philox") {
  TEST_CASE("gives the published words") {
    using Words = std::array<std::uint32_t, 4>;
    CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    constexpr std::uint32_t ones = 0xffffffff;
    CHECK(philox({ones, ones, ones, ones}, {ones, ones}) ==
          Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  }

  TEST_CASE("draws are in [0, 1), differ by seed and counter, and are spread evenly") {
    int low = 0;
    for (std::uint64_t i = 0; i < 10000; ++i) {
      const double u = uniform_draw(7, i);
      REQUIRE(u >= 0.0);
      REQUIRE(u < 1.0);
      REQUIRE(u != uniform_draw(8, i));
      REQUIRE(u != uniform_draw(7, i + (std::uint64_t{1} << 32)));
      low += u < 0.25 ? 1 : 0;
    }
    CHECK(low > 2300);
    CHECK(low < 2700);
  }
}

TEST_SUITE("kernels/ops/sample_select") {
  TEST_CASE("agrees with a full sort, with many equals and in adverse orders") {
    std::mt19937 engine(3);
    for (int round = 0; round < 60; ++round) {
      const std::size_t count = 1 + engine() % 9000;
      const auto wanted = static_cast<std::int32_t>(engine() % (count + 3));
      std::vector<float> logits(count);
      for (float& logit : logits) logit = static_cast<float>(engine() % 500);
      if (round % 3 == 1) std::sort(logits.begin(), logits.end());
      if (round % 3 == 2) logits[count / 2] = -std::numeric_limits<float>::infinity();
      std::vector<Candidate> sorted, room(count);
      for (std::size_t i = 0; i < count; ++i) {
        if (logits[i] > -1.0F) sorted.push_back({logits[i], static_cast<std::int32_t>(i)});
      }
      std::sort(sorted.begin(), sorted.end(), likelier);
      const std::int32_t got = select_likeliest(logits, wanted, room);
      REQUIRE(got == std::min<std::int64_t>(wanted, std::ssize(sorted)));
      for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
        REQUIRE(room[i].token == sorted[i].token);
      }
    }
  }
}

TEST_SUITE("kernels/ops/sample_nucleus") {
  TEST_CASE("keeps what a full sort keeps, with many equals and many zeros") {
    std::mt19937 engine(3);
    for (int round = 0; round < 80; ++round) {
      const std::size_t count = 1 + engine() % 3000;
      std::vector<float> weights(count);
      for (float& weight : weights) {
        const auto level = static_cast<float>(engine() % 100);
        weight = round % 2 == 0 ? level / 128.0F : std::exp(-level);
      }
      weights[engine() % count] = 1.0F;
      std::vector<Candidate> sorted, room(count);
      double total = 0.0, sum = 0.0;
      for (std::size_t i = 0; i < count; ++i) {
        sorted.push_back({weights[i], static_cast<std::int32_t>(i)});
        total += static_cast<double>(weights[i]);
      }
      std::sort(sorted.begin(), sorted.end(), likelier);
      const double mass = total * (0.05 + 0.9 * static_cast<double>(engine() % 1000) / 1000.0);
      std::vector<float> want(count), got = weights;
      // Sums of multiples of 1/128 are exact in any order; the others are far apart in size.
      for (std::size_t i = 0; i < count && sum < mass; ++i) {
        sum += static_cast<double>(sorted[i].logit);
        want[static_cast<std::size_t>(sorted[i].token)] = sorted[i].logit;
      }
      keep_nucleus(got, mass, room);
      if (round % 2 == 0) {
        REQUIRE(got == want);
      } else {
        std::size_t differing = 0;
        for (std::size_t i = 0; i < count; ++i) differing += got[i] != want[i] ? 1 : 0;
        REQUIRE(differing <= 1);  // the last one may hang on the order of the sum
      }
    }
  }

  TEST_CASE("a mass that rounding puts out of reach keeps all") {
    std::vector<float> weights{1.0F, 0.5F, 0.25F};
    std::vector<Candidate> room(3);
    keep_nucleus(weights, 1.75 + 1e-12, room);
    CHECK(weights == std::vector<float>{1.0F, 0.5F, 0.25F});
  }
}

}  // namespace

}  // namespace sample_steps_test
