#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t tokens, width;
  DType dtype;
  Activation activation;
  Strides strides;
};
const Case cases[] = {
    {3, 40, DType::bf16, Activation::silu_gated, {8, 0}},
    {5, 17, DType::bf16, Activation::silu_gated, {3, 1}},
    {2, 24, DType::f32, Activation::silu_gated, {}},
    {300, 8, DType::bf16, Activation::relu2, {}},
    {3, 9, DType::f32, Activation::relu2, {1, 0}},
};

void check_case(const Case& c) {
  CAPTURE(c.width);
  const std::int64_t halves = c.activation == Activation::silu_gated ? 2 : 1;
  auto x = random_tensor(c.dtype, {c.tokens, halves * c.width}, 1, 3.0F, c.strides);
  x.set(1, NAN);
  x.set(2, -90.0F);
  TestTensor y(c.dtype, {c.tokens, c.width}, c.strides);
  const DeviceTensor on_x(x), on_y(y);
  Queue plain = test_queue(Isa::plain);
  gated_activation(plain, {.x = x, .y = y, .activation = c.activation});

  cuda::Stream stream;
  cuda::gated_activation(stream, {.x = on_x, .y = on_y, .activation = c.activation});
  const cuda::Graph in_place(stream, [&] {
    const Tensor first = Tensor(on_x).columns(0, c.width);
    cuda::gated_activation(stream, {.x = on_x, .y = first, .activation = c.activation});
  });
  in_place.replay(stream);
  stream.wait();
  const TestTensor answer = on_y.fetch(), both = on_x.fetch();
  CHECK(answer.guards_intact());
  CHECK(both.guards_intact());
  const double rounding = c.dtype == DType::bf16 ? 0x1p-8 : 8 * 0x1p-24;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const double is = answer.get(i), expected = y.get(i);
    REQUIRE(std::isnan(is) == std::isnan(expected));
    if (std::isnan(is)) continue;
    REQUIRE(std::fabs(is - expected) <= rounding * std::fabs(expected));
    REQUIRE(both.get(i / c.width * halves * c.width + i % c.width) == answer.get(i));
  }
}

TEST_SUITE("cuda/gated_activation") {
  TEST_CASE("is the plain loop's within one rounding, beside x and in place") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : cases) check_case(c);
    });
  }
}

}  // namespace
