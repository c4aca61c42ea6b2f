#include "kernels/ops/short_conv.h"

#include <doctest/doctest.h>

#include "tests/cuda/conv_case.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

const ConvCase cases[] = {
    {1040, 3, DType::bf16, {}, {0, 9, 10, 12, 19}, {0, -1, 2, 5}, {0, 3, 2, 4}, false},
    {1024, 3, DType::bf16, {}, {0, 1, 2, 3}, {0, -1, 2}, {0, 3, 5}, false},  // decode
    {24, 4, DType::f32, {4, 0}, {0, 1, 2, 5}, {1, 3, -1}, {1, 0, 2}},
    {17, 3, DType::bf16, {3, 1}, {0, 2, 7}, {4, -1}, {4, 0}},
    {8, 2, DType::f32, {0, 1}, {0, 3, 4}, {-1, 2}, {1, 2}},
    {16, 4, DType::bf16, {8, 8}, {0, 1}, {3}, {5}},
    {8, 3, DType::bf16, {}, {0, 1, 2, 4, 3000, 3300}, {0, -1, 1, 3, 5}, {0, 2, 1, 3, 5}},  // tiles
};

/// In bf16 the sum may end on two sides of a rounding, and so may its product.
double bound(const ConvCase& c) { return c.dtype == DType::bf16 ? 0x1.02p-7 : 2e-6; }

TEST_SUITE("cuda/short_conv") {
  TEST_CASE("is the plain loop's answer; windows to the bit; unused spans touch nothing") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const ConvCase& c : cases) {
        check_case<ShortConv>(c, false, bound(c));
        if (c.begins.back() < 100) check_case<ShortConv>(c, true, bound(c));
      }
    });
  }

  TEST_CASE("cuts change no bit") {
    check_cuts_on_card<ShortConv>(4, DType::f32);
    check_cuts_on_card<ShortConv>(3, DType::bf16);
  }

  TEST_CASE("a chain of spans leaves the bytes of a call for each of them") {
    check_chains_on_card<ShortConv>();
  }
}

}  // namespace
