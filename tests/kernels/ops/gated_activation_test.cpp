#include "kernels/ops/gated_activation.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/kernels/support.h"

namespace gated_activation_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Of f32, as the contract has them.
double ulps(const Activation& activation, double value) {
  double exponent = 0.0;
  if (activation.function == ActivationFunction::gelu_tanh) {
    exponent = 1.5957691216 * value * (1 + 0.044715 * value * value);
  } else if (activation.function == ActivationFunction::clamped_swiglu) {
    exponent = activation.alpha * std::min<double>(value, activation.limit);
  }
  return 8.0 + 2.0 * std::fabs(exponent);
}

}  // namespace

TEST_SUITE("kernels/ops/gated_activation") {
  TEST_CASE("the function, times the second half where gated, on every route, within its bound") {
    for (const Isa isa : available_isas()) {
      for (const DType type : {DType::f32, DType::bf16}) {
        for (const Activation activation : all_activations) {
          for (const std::int64_t width : {1, 7, 16, 33, 100}) {
            CAPTURE(kernels::testing::name_of(isa));
            CAPTURE(kernels::name_of(activation.function));
            CAPTURE(activation.gated);
            CAPTURE(width);
            Queue queue = test_queue(isa, 2);
            const std::int64_t columns = activation.inputs() * width;
            const TestTensor x = random_tensor(type, {5, columns}, 1, 6.0F, {3, 1});
            const auto before = x.everything();
            TestTensor y(type, {5, width}, {1, 5});
            gated_activation(queue, {.x = x, .y = y, .activation = activation});
            for (std::int64_t t = 0; t < 5; ++t) {
              for (std::int64_t i = 0; i < width; ++i) {
                const double value = x.get(t * columns + i);
                const double up = activation.gated ? x.get(t * columns + width + i) : 0.0;
                const double expected = activated(activation, value, up);
                // Half a unit of the last place where bf16 is written.
                const double bound =
                    ulps(activation, value) * 0x1p-23 + (type == DType::bf16 ? 0x1p-8 : 0.0);
                CHECK(std::fabs(y.get(t * width + i) - expected) <=
                      bound * std::fabs(expected) + activation_slack(activation, value, up) +
                          1e-36);
              }
            }
            CHECK(y.guards_intact());
            CHECK(x.everything() == before);
          }
        }
      }
    }
  }

  TEST_CASE("an element depends on its own inputs only, and y may be the first columns of x") {
    for (const Isa isa : available_isas()) {
      for (const DType type : {DType::f32, DType::bf16}) {
        constexpr std::int64_t tokens = 200, width = 301;
        CAPTURE(kernels::testing::name_of(isa));
        Queue queue = test_queue(isa, 3), one = test_queue(isa, 1);
        TestTensor x = random_tensor(type, {tokens, 2 * width}, 2, 3.0F);
        TestTensor whole(type, {tokens, width}), narrow(type, {tokens, 2});
        gated_activation(queue, {.x = x, .y = whole});
        for (std::int64_t i = 0; i < width; i += 37) {  // one column as a matrix of its own
          TestTensor pair(type, {tokens, 2}), y(type, {tokens, 1});
          for (std::int64_t t = 0; t < tokens; ++t) {
            pair.set(t * 2, x.get(t * 2 * width + i));
            pair.set(t * 2 + 1, x.get(t * 2 * width + width + i));
          }
          gated_activation(one, {.x = pair, .y = y});
          for (std::int64_t t = 0; t < tokens; ++t) CHECK(y.get(t) == whole.get(t * width + i));
        }
        gated_activation(queue, {.x = x, .y = x.view().columns(0, width)});
        for (std::int64_t t = 0; t < tokens; ++t) {
          CHECK(x.get(t * 2 * width + 5) == whole.get(t * width + 5));
        }
      }
    }
  }

  TEST_CASE("the factors may be elsewhere, and y may be them: the same bits") {
    for (const Isa isa : available_isas()) {
      for (const DType type : {DType::f32, DType::bf16}) {
        constexpr std::int64_t tokens = 5, width = 37;
        Queue queue = test_queue(isa, 2);
        const TestTensor x = random_tensor(type, {tokens, 2 * width}, 3, 3.0F);
        TestTensor up(type, {tokens, width}, {3, 1}), whole(type, {tokens, width});
        gated_activation(queue, {.x = x, .y = whole});
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t i = 0; i < width; ++i) {
            up.set(t * width + i, x.get(t * 2 * width + width + i));
          }
        }
        gated_activation(queue, {.x = x.view().columns(0, width), .y = up, .up = up});
        CHECK(up.values() == whole.values());
        CHECK(up.guards_intact());
      }
    }
  }

  TEST_CASE("far out: silu goes to 0 and to x; NaN stays") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 1);
      TestTensor x(DType::f32, {4, 2}), y(DType::f32, {4, 1});
      const float gates[] = {-200.0F, 200.0F, NAN, 0.0F};
      for (std::int64_t t = 0; t < 4; ++t) {
        x.set(t * 2, gates[t]);
        x.set(t * 2 + 1, 2.0F);
      }
      gated_activation(queue, {.x = x, .y = y});
      CHECK(y.get(0) == 0.0F);
      CHECK(y.get(1) == 400.0F);
      CHECK(std::isnan(y.get(2)));
      CHECK(y.get(3) == 0.0F);
    }
  }

  TEST_CASE("relu2 squares what is positive, on every route") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 1);
      TestTensor x(DType::f32, {1, 5}), y(DType::f32, {1, 5});
      const float values[] = {-3.0F, 0.5F, 0.0F, NAN, -0.0F};
      for (std::int64_t i = 0; i < 5; ++i) x.set(i, values[i]);
      gated_activation(queue, {.x = x, .y = y, .activation = plain_relu2});
      CHECK(y.get(0) == 0.0F);
      CHECK(y.get(1) == 0.25F);
      CHECK(y.get(2) == 0.0F);
      CHECK(std::isnan(y.get(3)));
      CHECK(y.get(4) == 0.0F);
      CHECK_FALSE(std::signbit(y.get(4)));
    }
  }

  TEST_CASE("gelus far out; clamped swiglu clamps the gate above and the up on both sides") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 1);
      TestTensor x(DType::f32, {1, 5}), y(DType::f32, {1, 5});
      const float values[] = {-200.0F, 200.0F, NAN, 0.0F, -1e20F};
      for (std::int64_t i = 0; i < 5; ++i) x.set(i, values[i]);
      for (const Activation gelu : {plain_gelu, plain_exact_gelu}) {
        gated_activation(queue, {.x = x, .y = y, .activation = gelu});
        CHECK(y.get(0) == 0.0F);
        CHECK(y.get(1) == 200.0F);
        CHECK(std::isnan(y.get(2)));
        CHECK(y.get(3) == 0.0F);
        CHECK(y.get(4) == 0.0F);
      }

      // Gates, then ups.
      const float pairs[][2] = {{2.5F, 2.5F}, {30.0F, 9.0F}, {1.0F, -2.5F}, {1.0F, -9.0F},
                                {NAN, 1.0F},  {1.0F, NAN},   {-9.0F, 1.0F}};
      TestTensor both(DType::f32, {7, 2}), z(DType::f32, {7, 1});
      for (std::int64_t t = 0; t < 7; ++t) {
        both.set(t * 2, pairs[t][0]);
        both.set(t * 2 + 1, pairs[t][1]);
      }
      gated_activation(queue, {.x = both, .y = z, .activation = clamped_swiglu});
      CHECK(z.get(0) == z.get(1));
      CHECK(z.get(2) == z.get(3));
      CHECK(z.get(2) < 0.0F);
      CHECK(std::isnan(z.get(4)));
      CHECK(std::isnan(z.get(5)));
      CHECK(z.get(6) < 0.0F);  // the gate has no lower limit
      CHECK(z.get(6) > -1e-3F);

      Activation plain = clamped_swiglu;
      plain.gated = false;
      CHECK_THROWS_WITH_AS(gated_activation(queue, {.x = x, .y = y, .activation = plain}),
                           "gated_activation: an activation with a limit is gated, got 0", Error);
    }
  }

  TEST_CASE("an unknown function is refused by every route, not taken for another") {
    for (const Isa isa : available_isas()) {
      for (const bool gated : {false, true}) {
        Queue queue = test_queue(isa, 1);
        const TestTensor x(DType::f32, {2, 6}), y(DType::f32, {2, gated ? 3 : 6});
        Activation activation = unknown_activation;
        activation.gated = gated;
        CHECK_THROWS_WITH_AS(gated_activation(queue, {.x = x, .y = y, .activation = activation}),
                             "gated_activation: the activation's function exists, got 99", Error);
      }
    }
    for (const Activation activation : all_activations) CHECK(name_of(activation.function));
    CHECK_FALSE(name_of(unknown_activation.function));
  }

  TEST_CASE("shapes against the contract are errors") {
    Queue queue = test_queue(best_isa(), 1);
    const TestTensor odd(DType::f32, {2, 5}), x(DType::f32, {2, 6}), y(DType::f32, {2, 3});
    const TestTensor half(DType::bf16, {2, 3});
    CHECK_THROWS_AS(gated_activation(queue, {.x = odd, .y = y}), Error);
    CHECK_THROWS_AS(gated_activation(queue, {.x = x, .y = half}), Error);
    CHECK_THROWS_AS(gated_activation(queue, {.x = y, .y = y, .up = half}), Error);
    CHECK_THROWS_AS(gated_activation(queue, {.x = x, .y = y, .up = y}), Error);
    CHECK_THROWS_AS(gated_activation(queue, {.x = y, .y = y, .activation = plain_relu2, .up = y}),
                    Error);
    CHECK_THROWS_AS(gated_activation(queue, {.x = x, .y = y, .activation = plain_relu2}), Error);
  }
}

}  // namespace gated_activation_test
