#include "kernels/launch_tuning.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/error_text.h"

namespace launch_tuning_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::testing;

TEST_SUITE("kernels/launch_tuning") {
  TEST_CASE("a percentage, and on or off; without them the default") {
    CHECK_FALSE(launch_tuning_of({}, {}).carveout);
    CHECK(launch_tuning_of({}, {}).early_starts);
    CHECK(launch_tuning_of("0", "on").carveout == 0);
    CHECK(launch_tuning_of("100", "on").carveout == 100);
    CHECK(launch_tuning_of({}, "on").early_starts);
    CHECK_FALSE(launch_tuning_of({}, "off").early_starts);
  }

  TEST_CASE("everything else is refused by the name of its variable") {
    for (const char* bad : {"-1", "101", "50%", " 50", "1e2", "99999999999999999999", "max"}) {
      CAPTURE(bad);
      const std::string text = error_text([&] { launch_tuning_of(bad, {}); });
      CHECK(contains(text, "HYB_CUDA_CARVEOUT is a percentage, 0 to 100, not '"));
    }
    for (const char* bad : {"1", "ON", "off ", "true"}) {
      CAPTURE(bad);
      const std::string text = error_text([&] { launch_tuning_of({}, bad); });
      CHECK(contains(text, "HYB_CUDA_EARLY_STARTS is on or off, not '"));
    }
  }
}

}  // namespace launch_tuning_test
