#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t tokens, width, heads;
  bool one_plus;
  Strides strides;
};
const Case cases[] = {
    {5, 768, 1, false, {}},     {3, 256, 4, true, {8, 0}}, {3, 17, 1, false, {}},
    {4, 130, 2, true, {3, 1}},  {2, 1, 1, false, {}},      {2, 2048, 1, false, {16, 8}},
    {3, 1500, 1, true, {5, 0}}, {2, 1024, 1, false, {}},   {9, 96, 3, false, {8, 8}}};

/// Relative and absolute: the plain loop sums in another order, which bf16 mostly rounds away.
double bound_of(DType dtype) { return dtype == DType::bf16 ? 0.0079 : 3e-6; }

void check_norm(const Case& c, DType dtype) {
  CAPTURE(c.width);
  const auto x = random_tensor(dtype, {c.tokens, c.width}, 1, 3.0F, c.strides);
  const auto weight = random_tensor(DType::f32, {c.width / c.heads}, 2);
  const TestTensor y(dtype, {c.tokens, c.width}, c.strides);
  TestTensor expected = y;
  Queue plain = test_queue(Isa::plain);
  rms_norm(plain,
           {.x = x, .weight = weight, .y = expected, .one_plus = c.one_plus, .heads = c.heads});

  cuda::Stream stream;
  const DeviceTensor on_x(x), on_weight(weight), on_y(y);
  const RmsNorm op = {
      .x = on_x, .weight = on_weight, .y = on_y, .one_plus = c.one_plus, .heads = c.heads};
  cuda::rms_norm(stream, op);
  stream.wait();
  const TestTensor answer = on_y.fetch();
  CHECK(largest_error(answer, expected, 1e-3) <= bound_of(dtype));
  CHECK(answer.guards_intact());
  CHECK(on_x.fetch().everything() == x.everything());

  // One row alone, then all again from a graph and in place: the same bits.
  TestTensor last(dtype, {1, c.width}, c.strides);
  const DeviceTensor on_last(last);
  const Tensor row = Tensor(on_x).rows(c.tokens - 1, 1);
  cuda::rms_norm(
      stream,
      {.x = row, .weight = on_weight, .y = on_last, .one_plus = c.one_plus, .heads = c.heads});
  const cuda::Graph graph(stream, [&] {
    cuda::rms_norm(
        stream,
        {.x = on_x, .weight = on_weight, .y = on_x, .one_plus = c.one_plus, .heads = c.heads});
  });
  graph.replay(stream);
  stream.wait();
  last = on_last.fetch();
  for (std::int64_t i = 0; i < c.width; ++i) {
    REQUIRE(last.get(i) == answer.get((c.tokens - 1) * c.width + i));
  }
  CHECK(same_bytes(on_x.fetch(), answer));
}

TEST_SUITE("cuda/rms_norm") {
  TEST_CASE("is the plain loop's answer, alone, among others, in place and from a graph") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Case& c : cases) check_norm(c, dtype);
      }
    });
  }
}

}  // namespace
