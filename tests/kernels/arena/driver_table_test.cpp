#include "kernels/arena/driver_table.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::kernels;
using hyb::testing::contains;
using hyb::testing::error_text;

TEST_SUITE("kernels/arena/driver_table") {
  TEST_CASE("what is missing is named") {
    const std::string none = error_text([] { load_driver("libno-such-driver.so.1"); });
    CHECK(contains(none, "libno-such-driver.so.1"));
    CHECK(contains(none, "--device cpu"));
    const std::string other = error_text([] { load_driver("libm.so.6"); });
    CHECK(contains(other, "libm.so.6 has no cuGetErrorName"));
  }
}
