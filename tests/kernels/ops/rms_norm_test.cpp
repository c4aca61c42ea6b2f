#include "kernels/ops/rms_norm.h"

#include <doctest/doctest.h>

#include "tests/kernels/support.h"

namespace rms_norm_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t tokens, width, heads;
  bool one_plus;
};
constexpr Case cases[] = {{1, 768, 1, false}, {5, 64, 4, true},     {3, 17, 1, false},
                          {4, 130, 2, true},  {2, 1, 1, false},     {9, 2048, 1, false},
                          {40, 800, 1, true}, {2, 3 * 31, 3, false}};

/// In doubles, from the definition.
std::vector<double> expected(const TestTensor& x, const TestTensor& weight, const Case& c,
                             double eps) {
  std::vector<double> y;
  const std::int64_t width = c.width / c.heads;
  for (std::int64_t begin = 0; begin < x.size(); begin += width) {
    double squares = 0;
    for (std::int64_t i = 0; i < width; ++i) squares += std::pow(x.get(begin + i), 2.0);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (std::int64_t i = 0; i < width; ++i) {
      y.push_back(x.get(begin + i) * scale * ((c.one_plus ? 1.0 : 0.0) + weight.get(i)));
    }
  }
  return y;
}

TEST_SUITE("kernels/ops/rms_norm") {
  TEST_CASE("is the definition, rounded once, on every route and within strided views") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Case& c : cases) {
          CAPTURE(name_of(isa));
          CAPTURE(c.width);
          Queue queue = test_queue(isa, 2);
          const auto x = random_tensor(dtype, {c.tokens, c.width}, 1, 3.0F, {5, 1});
          const auto weight = random_tensor(DType::f32, {c.width / c.heads}, 2, 1.0F, {0, 3});
          TestTensor y(dtype, {c.tokens, c.width}, {7, 3});
          const auto before = x.everything();
          rms_norm(queue, {.x = x,
                           .weight = weight,
                           .y = y,
                           .eps = 1e-5F,
                           .one_plus = c.one_plus,
                           .heads = c.heads});
          CHECK(y.guards_intact());
          CHECK(x.everything() == before);
          const auto want = expected(x, weight, c, 1e-5);
          const double bound = dtype == DType::bf16 ? 0.00391 : 2e-6;
          for (std::int64_t i = 0; i < y.size(); ++i) {
            const double e = want[static_cast<std::size_t>(i)];
            REQUIRE(std::fabs(y.get(i) - e) <= bound * std::fabs(e) + 1e-7);
          }
        }
      }
    }
  }

  TEST_CASE("no weight is a weight of ones") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Queue queue = test_queue(isa, 2);
        const auto x = random_tensor(dtype, {5, 3 * 77}, 1, 3.0F, {5, 1});
        TestTensor ones(DType::f32, {77}), plain(dtype, {5, 3 * 77}), y = plain;
        for (std::int64_t i = 0; i < 77; ++i) ones.set(i, 1.0F);
        rms_norm(queue, {.x = x, .weight = {}, .y = y, .heads = 3});
        rms_norm(queue, {.x = x, .weight = ones, .y = plain, .heads = 3});
        CHECK(same_bytes(y, plain));
      }
    }
  }

  TEST_CASE("what is added is the norm as it would be written, and the sum has the factor") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        CAPTURE(name_of(isa));
        Queue queue = test_queue(isa, 2);
        const auto x = random_tensor(dtype, {5, 77}, 1, 3.0F, {5, 1});
        const auto weight = random_tensor(DType::f32, {77}, 2);
        const auto before = random_tensor(dtype, {5, 77}, 3, 3.0F, {7, 3});
        TestTensor normed(dtype, {5, 77}), factor(DType::f32, {1}), rounded(dtype, {1});
        factor.set(0, 0.3F);
        rms_norm(queue, {.x = x, .weight = weight, .y = normed});
        TestTensor sum = before, scaled = before;
        rms_norm(queue, {.x = x, .weight = weight, .y = sum, .add = true});
        rms_norm(queue, {.x = x, .weight = weight, .y = scaled, .add = true, .factor = factor});
        CHECK(sum.guards_intact());
        CHECK(scaled.guards_intact());
        for (std::int64_t i = 0; i < sum.size(); ++i) {
          rounded.set(0, static_cast<float>(before.get(i)) + static_cast<float>(normed.get(i)));
          REQUIRE(sum.get(i) == rounded.get(0));
          rounded.set(0, static_cast<float>(sum.get(i)) * 0.3F);
          REQUIRE(scaled.get(i) == rounded.get(0));
        }
      }
    }
  }

  TEST_CASE("a row's answer depends on no other row, on no thread and not on writing in place") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const auto x = random_tensor(dtype, {70, 515}, 3);
        const auto weight = random_tensor(DType::f32, {515}, 4);
        TestTensor whole(dtype, {70, 515});
        Queue one = test_queue(isa, 1);
        rms_norm(one, {.x = x, .weight = weight, .y = whole});
        for (const int threads : {2, 3}) {
          Queue queue = test_queue(isa, threads);
          TestTensor again = x;
          rms_norm(queue, {.x = again, .weight = weight, .y = again});
          CHECK(same_bytes(again, whole));
        }
        TestTensor rows(dtype, {70, 515}, {3, 1});
        for (std::int64_t t = 69; t >= 0; --t) {
          rms_norm(one, {.x = x.view().rows(t, 1), .weight = weight, .y = rows.view().rows(t, 1)});
        }
        CHECK(same_bytes(rows, whole));
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const TestTensor x(DType::f32, {2, 6}), weight(DType::f32, {6});
    CHECK_THROWS_WITH_AS(rms_norm(queue, {.x = x, .weight = weight, .y = x, .heads = 4}),
                         "rms_norm: heads divides H, got 4", Error);
    CHECK_THROWS_AS(rms_norm(queue, {.x = x, .weight = weight, .y = x, .heads = 2}), Error);
    CHECK_THROWS_AS(rms_norm(queue, {.x = x, .weight = weight, .y = x, .add = true}), Error);
    const TestTensor factor(DType::f32, {1}), y(DType::f32, {2, 6});
    CHECK_THROWS_AS(rms_norm(queue, {.x = x, .weight = weight, .y = y, .factor = factor}), Error);
  }
}

}  // namespace

}  // namespace rms_norm_test
