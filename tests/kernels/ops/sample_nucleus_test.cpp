#include "kernels/ops/sample_nucleus.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using namespace hyb::kernels;

namespace {

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
