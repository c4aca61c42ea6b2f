#include "kernels/ops/gated_norm.h"

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t tokens, width, groups;
  Strides strides;
};
const Case cases[] = {{5, 768, 1, {}},     {3, 256, 4, {8, 0}},   {3, 17, 1, {}},
                      {4, 130, 2, {3, 1}}, {2, 2048, 1, {16, 8}}, {3, 3000, 2, {5, 0}},
                      {9, 96, 3, {8, 8}},  {2, 512, 4, {8, 0}}};

void check_norm(const Case& c, DType dtype, bool norm_first) {
  CAPTURE(c.width);
  CAPTURE(norm_first);
  const auto x = random_tensor(dtype, {c.tokens, c.width}, 1, 3.0F, c.strides);
  const auto gate = random_tensor(dtype, {c.tokens, c.width}, 2, 3.0F, c.strides);
  const auto weight = random_tensor(DType::f32, {c.width}, 3);
  const TestTensor y(dtype, {c.tokens, c.width}, c.strides);
  TestTensor expected = y;
  Queue plain = test_queue(Isa::plain);
  gated_norm(plain, {.x = x,
                     .gate = gate,
                     .weight = weight,
                     .y = expected,
                     .groups = c.groups,
                     .norm_first = norm_first});

  cuda::Stream stream;
  const DeviceTensor on_x(x), on_gate(gate), on_weight(weight), on_y(y);
  const auto norm = [&](const Tensor& to) {
    cuda::gated_norm(stream, {.x = on_x,
                              .gate = on_gate,
                              .weight = on_weight,
                              .y = to,
                              .groups = c.groups,
                              .norm_first = norm_first});
  };
  norm(on_y);
  stream.wait();
  const TestTensor answer = on_y.fetch();
  CHECK(largest_error(answer, expected, 1e-3) <= (dtype == DType::bf16 ? 0.0079 : 4e-6));
  CHECK(answer.guards_intact());
  CHECK(on_x.fetch().everything() == x.everything());

  const cuda::Graph in_place(stream, [&] { norm(on_x); });
  in_place.replay(stream);
  stream.wait();
  CHECK(same_bytes(on_x.fetch(), answer));
}

TEST_SUITE("cuda/gated_norm") {
  TEST_CASE("is the plain loop's answer, also in place and from a graph") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Case& c : cases) {
          check_norm(c, dtype, false);
          check_norm(c, dtype, true);
        }
      }
    });
  }
}

}  // namespace
