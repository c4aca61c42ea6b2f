#include "kernels/ops/philox.h"

#include <doctest/doctest.h>

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

}  // namespace
