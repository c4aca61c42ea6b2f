#include <doctest/doctest.h>

#include "kernels/ops/cap.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/ssd.h"
#include "kernels/simd/routes.h"
#include "tests/kernels/support.h"

namespace math_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Distance in units of the last place of the expected value.
double ulps(float got, double expected) {
  const auto nearest = static_cast<float>(expected);
  const double ulp = static_cast<double>(std::nextafter(std::fabs(nearest), INFINITY)) -
                     static_cast<double>(std::fabs(nearest));
  return std::fabs(static_cast<double>(got) - expected) / ulp;
}

std::vector<float> spread(float low, float high, std::size_t count) {
  std::vector<float> xs;
  for (std::size_t i = 0; i < count; ++i) {
    xs.push_back(low + (high - low) * static_cast<float>(i) / static_cast<float>(count - 1));
  }
  return xs;
}

std::vector<float> exponentials(Isa isa, const std::vector<float>& xs) {
  std::vector<float> ys(xs.size());
  const LogitWeights job{.logits = xs.data(),
                         .count = static_cast<std::int32_t>(xs.size()),
                         .largest = 0.0F,
                         .inverse_temperature = 1.0F,
                         .floor = 0.0F,
                         .weights = ys.data()};
  const FlushDenormals flush;
  isa == Isa::avx2 ? weigh_logits<Isa::avx2>(job) : weigh_logits<Isa::avx512>(job);
  return ys;
}

/// The vector functions are private to the files compiled for their machine; they are seen here
/// through the thinnest op above each.
TEST_SUITE("kernels/simd/math") {
  TEST_CASE("exp is within 2 ulp, and right at and beyond the ends of its range") {
    for (const Isa isa : available_isas()) {
      if (isa == Isa::plain) continue;
      CAPTURE(name_of(isa));
      for (const auto& xs : {spread(-87.2F, 88.7F, 200001), spread(-1.0F, 1.0F, 200001)}) {
        const auto ys = exponentials(isa, xs);
        double worst = 0;
        for (std::size_t i = 0; i < xs.size(); ++i) {
          worst = std::max(worst, ulps(ys[i], std::exp(static_cast<double>(xs[i]))));
        }
        CHECK(worst <= 2.0);
      }
      const auto ends = exponentials(
          isa, {-INFINITY, -1e30F, -104.0F, -88.0F, 0.0F, -0.0F, 89.0F, 1e30F, INFINITY, NAN});
      for (std::size_t i = 0; i < 4; ++i) CHECK(ends[i] == 0.0F);
      CHECK(ends[4] == 1.0F);
      CHECK(ends[5] == 1.0F);
      for (std::size_t i = 6; i < 9; ++i) CHECK(ends[i] == INFINITY);
      CHECK(std::isnan(ends[9]));
    }
  }

  TEST_CASE("silu is within 4 ulp") {
    for (const Isa isa : available_isas()) {
      if (isa == Isa::plain) continue;
      CAPTURE(name_of(isa));
      const auto xs = spread(-80.0F, 80.0F, 100001);
      const auto count = static_cast<std::int64_t>(xs.size());
      TestTensor x(DType::f32, {1, count}), y(DType::f32, {1, count});
      TestTensor weight(DType::f32, {count, 2}), windows(DType::f32, {1, count, 1});
      for (std::int64_t i = 0; i < count; ++i) {
        x.set(i, xs[static_cast<std::size_t>(i)]);
        weight.set(2 * i + 1, 1.0F);
      }
      Queue queue = test_queue(isa);
      const Table begin{0, 1}, slot{0};
      causal_conv(queue, {.x = x,
                          .weight = weight,
                          .bias = {},
                          .windows = windows,
                          .span_begin = begin,
                          .read_slot = slot,
                          .write_slot = slot,
                          .y = y});
      double worst = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const double value = xs[static_cast<std::size_t>(i)];
        worst = std::max(worst, ulps(y.get(i), value / (1.0 + std::exp(-value))));
      }
      CHECK(worst <= 4.0);
    }
  }

  TEST_CASE("tanh is within 3 ulp") {
    for (const Isa isa : available_isas()) {
      if (isa == Isa::plain) continue;
      CAPTURE(name_of(isa));
      const auto xs = spread(-20.0F, 20.0F, 50001);
      TestTensor x(DType::f32, {1, static_cast<std::int64_t>(xs.size())});
      for (std::size_t i = 0; i < xs.size(); ++i) x.set(static_cast<std::int64_t>(i), xs[i]);
      Queue queue = test_queue(isa);
      cap(queue, {.x = x, .cap = 1.0F});
      double worst = 0;
      for (std::size_t i = 0; i < xs.size(); ++i) {
        const auto value = static_cast<double>(xs[i]);
        worst = std::max(worst, ulps(x.get(static_cast<std::int64_t>(i)), std::tanh(value)));
      }
      CHECK(worst <= 3.0);
    }
  }

  TEST_CASE("softplus is within 4 ulp") {
    for (const Isa isa : available_isas()) {
      if (isa == Isa::plain) continue;
      CAPTURE(name_of(isa));
      // One head per value, one row, one column, x = B = C = 1, nothing before: y = dt.
      const auto xs = spread(-85.0F, 30.0F, 50001);
      const auto count = static_cast<std::int64_t>(xs.size());
      TestTensor x(DType::f32, {1, count + 2}), dt(DType::f32, {1, count});
      TestTensor zero(DType::f32, {count}), state(DType::f32, {1, count, 1, 1});
      TestTensor y(DType::f32, {1, count});
      for (std::int64_t i = 0; i < count + 2; ++i) x.set(i, 1.0F);
      for (std::int64_t i = 0; i < count; ++i) dt.set(i, xs[static_cast<std::size_t>(i)]);
      Queue queue = test_queue(isa);
      const Table begin{0, 1}, read{-1}, write{0};
      mamba_scan(queue, {.x = x,
                         .dt = dt,
                         .rate = zero,
                         .d = zero,
                         .dt_bias = zero,
                         .state = state,
                         .span_begin = begin,
                         .read_slot = read,
                         .write_slot = write,
                         .y = y});
      double worst = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const double value = xs[static_cast<std::size_t>(i)];
        worst = std::max(worst, ulps(y.get(i), std::log1p(std::exp(value))));
      }
      CHECK(worst <= 4.0);
    }
  }
}

}  // namespace

}  // namespace math_test
