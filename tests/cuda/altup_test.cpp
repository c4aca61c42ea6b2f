#include "kernels/ops/altup.h"

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/sparse_gate.h"
#include "tests/cuda/support.h"

namespace altup_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Relative and absolute: the plain loop sums in another order, which bf16 mostly rounds away.
double bound_of(DType dtype) { return dtype == DType::bf16 ? 0.0079 : 4e-6; }

struct Shape {
  std::int64_t tokens, streams, width, active;
};
const Shape shapes[] = {{3, 4, 256, 0}, {2, 3, 17, 2}, {1, 8, 131, 5}, {4, 2, 1, 1}};

void check_streams(const Shape& s, DType dtype) {
  CAPTURE(s.width);
  const auto x = random_tensor(dtype, {s.tokens, s.streams * s.width}, 1, 1.0F, {8, 3});
  const auto router = random_tensor(DType::f32, {s.tokens, s.streams}, 2, 2.0F);
  const auto coefs = random_tensor(DType::f32, {s.streams * s.streams, s.streams}, 3);
  const auto scale = random_tensor(DType::f32, {s.width}, 4);
  TestTensor y(dtype, {s.tokens, s.streams * s.width}, {8, 3}), h(dtype, {s.tokens, s.width});
  const DeviceTensor on_x(x), on_router(router), on_coefs(coefs), on_scale(scale), on_y(y), on_h(h);
  Queue plain = test_queue(Isa::plain);
  cuda::Stream stream;
  const auto few = [&](const Tensor& all) { return all.rows(0, s.streams); };

  altup_predict(plain,
                {.x = x, .router = router, .coefs = coefs, .y = y, .h = h, .active = s.active});
  const cuda::Graph predict(stream, [&] {
    cuda::altup_predict(stream, {.x = on_x,
                                 .router = on_router,
                                 .coefs = on_coefs,
                                 .y = on_y,
                                 .h = on_h,
                                 .active = s.active});
  });
  predict.replay(stream);
  stream.wait();
  CHECK(on_y.fetch().guards_intact());
  CHECK(largest_error(on_y.fetch(), y, 1.0) <= bound_of(dtype));
  CHECK(largest_error(on_h.fetch(), h, 1.0) <= bound_of(dtype));

  // In place, from what the plain loop predicted.
  const DeviceTensor again(y), news(h);
  altup_correct(plain, {.x = y,
                        .router = router,
                        .coefs = few(coefs),
                        .scale = scale,
                        .y = y,
                        .h = h,
                        .active = s.active});
  cuda::altup_correct(stream, {.x = again,
                               .router = on_router,
                               .coefs = few(Tensor(on_coefs)),
                               .scale = on_scale,
                               .y = again,
                               .h = news,
                               .active = s.active});
  stream.wait();
  CHECK(again.fetch().guards_intact());
  CHECK(largest_error(again.fetch(), y, 1.0) <= bound_of(dtype));
  CHECK(largest_error(news.fetch(), h, 1.0) <= 2 * bound_of(dtype));
}

}  // namespace

TEST_SUITE("cuda/altup") {
  TEST_CASE("predicted and corrected streams are the plain loop's, in place and from a graph") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Shape& shape : shapes) check_streams(shape, dtype);
      }
    });
  }

  TEST_CASE("magnitudes, sums and sparse gates are the plain loop's, and a row's alone") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t width : {1, 17, 256, 1500}) {
          CAPTURE(width);
          TestTensor x = random_tensor(dtype, {3, width}, 1, 3.0F, {8, 3});
          TestTensor y = random_tensor(dtype, {3, width}, 2, 1.0F, {0, 1});
          const DeviceTensor on_x(x), on_y(y), last(x);
          Queue plain = test_queue(Isa::plain);
          cuda::Stream stream;
          match_magnitude(plain, {.x = x, .like = y});
          add_rows(plain, {.x = x, .y = y, .scale = 0.25F});
          sparse_gate(plain, {.x = y, .deviations = 0.5F});
          cuda::match_magnitude(stream, {.x = on_x, .like = on_y});
          cuda::match_magnitude(stream,
                                {.x = Tensor(last).rows(2, 1), .like = Tensor(on_y).rows(2, 1)});
          cuda::add_rows(stream, {.x = on_x, .y = on_y, .scale = 0.25F});
          cuda::sparse_gate(stream, {.x = on_y, .deviations = 0.5F});
          stream.wait();
          const TestTensor found = on_x.fetch(), alone = last.fetch();
          CHECK(found.guards_intact());
          CHECK(largest_error(found, x, 1.0) <= bound_of(dtype));
          CHECK(largest_error(on_y.fetch(), y, 1.0) <= 2 * bound_of(dtype));
          for (std::int64_t i = 2 * width; i < 3 * width; ++i) {
            REQUIRE(alone.get(i) == found.get(i));
          }
        }
      }
    });
  }
}

}  // namespace altup_test
