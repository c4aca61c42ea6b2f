// Prompts beside answers on one card: a stream for each, in one memory.
#include <doctest/doctest.h>

#include <string>

#include "tests/cuda/lanes_support.h"

namespace cuda_lanes_test {

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("cuda/lanes") {
  TEST_CASE("batch-invariant: answers are the same bytes with a stream for prompts") {
    for (const std::string& name : lane_models) {
      CAPTURE(name);
      const Run plain = run(options_for(name, {}));
      CHECK(plain.answers[3].size() == 5);
      CHECK(plain.usage.prefill_steps == 0);
      const Run streams = run(options_for(name, one_card));
      CHECK(streams.answers == plain.answers);
      CHECK(streams.usage.prefill_steps >= 4);
      CHECK(streams.usage.handovers.sequences == 0);
    }
  }
}

}  // namespace cuda_lanes_test
