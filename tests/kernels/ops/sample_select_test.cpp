#include "kernels/ops/sample_select.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

using namespace hyb::kernels;

namespace {

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

}  // namespace
