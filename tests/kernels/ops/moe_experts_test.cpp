#include "kernels/ops/moe_experts.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/support.h"

namespace moe_experts_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Shape {
  std::int64_t tokens, chosen, experts, hidden, intermediate;
};

/// The weights of all experts, the activations, and a random choice without repetitions.
struct Case {
  Case(Queue& queue, const Shape& s, DType type, Activation kind = gated_silu)
      : shape(s),
        dtype(type),
        activation(kind),
        inner(kind.inputs() * s.intermediate),
        up_values(random_tensor(type, {s.experts, inner, s.hidden}, 1, 0.3F)),
        down_values(random_tensor(type, {s.experts, s.hidden, s.intermediate}, 2, 0.3F)),
        up_bytes(up_values.packed()),
        down_bytes(down_values.packed()),
        up_source{type, s.experts, inner, s.hidden, up_bytes},
        down_source{type, s.experts, s.hidden, s.intermediate, down_bytes},
        up(Weight::pack(queue, up_source, type)),
        down(Weight::pack(queue, down_source, type)),
        x(random_tensor(type, {s.tokens, s.hidden}, 3)),
        chosen(DType::i32, {s.tokens, s.chosen}),
        weights(random_tensor(DType::f32, {s.tokens, s.chosen}, 4)) {
    std::mt19937 engine(5);
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      std::vector<std::int32_t> all(static_cast<std::size_t>(s.experts));
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), engine);
      for (std::int64_t j = 0; j < s.chosen; ++j) {
        chosen.view().row<std::int32_t>(t)[j] = all[static_cast<std::size_t>(j)];
      }
    }
  }

  MoeExpertsShape op_shape(std::int64_t tokens) const {
    return {.tokens = tokens,
            .chosen = shape.chosen,
            .experts = shape.experts,
            .hidden = shape.hidden,
            .intermediate = shape.intermediate,
            .dtype = dtype,
            .activation = activation};
  }

  /// Tokens begin .. begin+count-1 into the same rows of y, in a workspace of just the right size
  /// full of rubbish.
  void run(Queue& queue, std::int64_t begin, std::int64_t count, const Tensor& y, float scale = 1,
           bool add = false, bool published = false) const {
    const auto bytes = static_cast<std::int64_t>(moe_experts_workspace_bytes(op_shape(count)));
    const Buffer buffer(Device::cpu, static_cast<std::size_t>(bytes) + 64);
    std::fill_n(buffer.data(), buffer.bytes(), std::byte{0xff});
    const Weight up_rows = Weight::view(up_source), down_rows = Weight::view(down_source);
    moe_experts(queue, {.x = x.view().rows(begin, count),
                        .chosen = chosen.view().rows(begin, count),
                        .weights = weights.view().rows(begin, count),
                        .gate_up = published ? &up_rows : &up,
                        .down = published ? &down_rows : &down,
                        .y = y.rows(begin, count),
                        .workspace = buffer.tensor(0, DType::u8, {bytes}),
                        .activation = activation,
                        .scale = scale,
                        .add = add});
    for (std::size_t i = 0; i < 64; ++i) {
      CHECK(buffer.data()[buffer.bytes() - 64 + i] == std::byte{0xff});
    }
  }

  double rounded(double value) const {
    return dtype == DType::bf16 ? to_float(to_bf16(static_cast<float>(value))) : value;
  }

  /// In double, rounding only where the contract rounds.
  std::vector<double> reference(std::int64_t t) const {
    std::vector<double> y(static_cast<std::size_t>(shape.hidden));
    for (std::int64_t j = 0; j < shape.chosen; ++j) {
      const std::int64_t e = chosen.view().row<std::int32_t>(t)[j];
      std::vector<double> both(static_cast<std::size_t>(inner)), act;
      for (std::int64_t n = 0; n < inner; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < shape.hidden; ++k) {
          sum += static_cast<double>(x.get(t * shape.hidden + k)) *
                 static_cast<double>(up_values.get((e * inner + n) * shape.hidden + k));
        }
        both[static_cast<std::size_t>(n)] = rounded(sum);
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(shape.intermediate); ++i) {
        const double factor =
            activation.gated ? both[i + static_cast<std::size_t>(shape.intermediate)] : 0.0;
        act.push_back(rounded(activated(activation, both[i], factor)));
      }
      for (std::int64_t n = 0; n < shape.hidden; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < shape.intermediate; ++k) {
          const std::int64_t i = (e * shape.hidden + n) * shape.intermediate + k;
          sum += act[static_cast<std::size_t>(k)] * static_cast<double>(down_values.get(i));
        }
        y[static_cast<std::size_t>(n)] +=
            static_cast<double>(weights.get(t * shape.chosen + j)) * sum;
      }
    }
    return y;
  }

  Shape shape;
  DType dtype;
  Activation activation;
  std::int64_t inner;
  TestTensor up_values, down_values;
  std::vector<std::byte> up_bytes, down_bytes;
  WeightSource up_source, down_source;
  Weight up, down;
  TestTensor x, chosen, weights;
};

}  // namespace

TEST_SUITE("kernels/ops/moe_experts") {
  TEST_CASE("every route gives the sum over the chosen experts, from both formats") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      for (const Shape& s :
           {Shape{1, 1, 1, 3, 1}, Shape{9, 3, 8, 70, 24}, Shape{20, 2, 4, 65, 67}}) {
        for (const DType type : {DType::f32, DType::bf16}) {
          for (const Activation kind : all_activations) {
            for (const bool published : {false, true}) {
              CAPTURE(kernels::testing::name_of(isa));
              CAPTURE(s.hidden);
              CAPTURE(published);
              const Case c(queue, s, type, kind);
              TestTensor y = random_tensor(type, {s.tokens, s.hidden}, 6, 1.0F, {3, 1});
              const TestTensor before = y;
              c.run(queue, 0, s.tokens, y, 0.5F, true, published);
              // bf16: an intermediate value may be rounded the other way.
              // A gated relu2 is a cube of sums, with three times the relative error of one.
              const double f32_bound = kind == gated_relu2 ? 6e-5 : 2e-5;
              const double bound = type == DType::bf16 ? 0.02 : f32_bound;
              double worst = 0;
              for (std::int64_t t = 0; t < s.tokens; ++t) {
                const auto expected = c.reference(t);
                for (std::int64_t n = 0; n < s.hidden; ++n) {
                  const double e =
                      before.get(t * s.hidden + n) + 0.5 * expected[static_cast<std::size_t>(n)];
                  const double error = std::fabs(y.get(t * s.hidden + n) - e) / (1 + std::fabs(e));
                  worst = std::max(worst, std::isnan(error) ? INFINITY : error);
                }
              }
              CHECK(worst < bound);
              CHECK(y.guards_intact());
            }
          }
        }
      }
    }
  }

  TEST_CASE("a token's answer is the same bits in any company and on any threads") {
    for (const Isa isa : available_isas()) {
      for (const DType type : {DType::f32, DType::bf16}) {
        CAPTURE(kernels::testing::name_of(isa));
        Queue one = test_queue(isa, 1);
        const Shape s = {61, 4, 9, 130, 40};
        const Case c(one, s, type);
        TestTensor whole(type, {s.tokens, s.hidden});
        c.run(one, 0, s.tokens, whole);
        std::mt19937 engine(7);
        for (const int threads : {1, 2, 3}) {
          Queue queue = test_queue(isa, threads);
          for (int repeat = 0; repeat < 3; ++repeat) {
            TestTensor cut(type, {s.tokens, s.hidden}, {5, 1});
            const auto begins = random_cuts(static_cast<std::int32_t>(s.tokens), engine);
            for (std::size_t i = begins.size() - 1; i-- > 0;) {
              c.run(queue, begins[i], begins[i + 1] - begins[i], cut);
            }
            CHECK(same_bytes(whole, cut));
          }
        }
      }
    }
  }

  TEST_CASE("f16 experts give the bits of f32 experts with the same numbers") {
    for (const Isa isa : available_isas()) {
      CAPTURE(kernels::testing::name_of(isa));
      Queue queue = test_queue(isa, 2);
      for (const Shape& s : {Shape{1, 1, 1, 3, 1}, Shape{30, 3, 8, 70, 23}}) {
        Case c(queue, s, DType::f32);
        const TestTensor up = converted(c.up_values, DType::f16, {s.experts, c.inner, s.hidden});
        const TestTensor down =
            converted(c.down_values, DType::f16, {s.experts, s.hidden, s.intermediate});
        const auto up_bytes = up.packed(), down_bytes = down.packed();
        const WeightSource up_source(DType::f16, s.experts, c.inner, s.hidden, up_bytes);
        const WeightSource down_source(DType::f16, s.experts, s.hidden, s.intermediate, down_bytes);
        TestTensor y[2];
        for (const DType type : {DType::f16, DType::f32}) {
          c.up = Weight::pack(queue, up_source, type);
          c.down = Weight::pack(queue, down_source, type);
          TestTensor& answer = y[type == DType::f32];
          answer = TestTensor(DType::f32, {s.tokens, s.hidden});
          c.run(queue, 0, s.tokens, answer);
        }
        CHECK(same_bytes(y[0], y[1]));
      }
    }
  }

  TEST_CASE("inputs stay as they were") {
    Queue queue = test_queue(best_isa(), 2);
    const Case c(queue, {5, 2, 3, 33, 20}, DType::bf16);
    const auto x = c.x.everything(), chosen = c.chosen.everything(), w = c.weights.everything();
    TestTensor y(DType::bf16, {5, 33});
    c.run(queue, 0, 5, y);
    CHECK(c.x.everything() == x);
    CHECK(c.chosen.everything() == chosen);
    CHECK(c.weights.everything() == w);
  }

  TEST_CASE("an expert that does not exist, or too little workspace, is an error") {
    Queue queue = test_queue(best_isa(), 1);
    const Case c(queue, {2, 2, 3, 33, 20}, DType::f32);
    for (const std::int32_t bad : {-1, 3}) {
      Case broken(queue, {2, 2, 3, 33, 20}, DType::f32);
      broken.chosen.view().row<std::int32_t>(1)[0] = bad;
      TestTensor y(DType::f32, {2, 33});
      CHECK_THROWS_AS(broken.run(queue, 0, 2, y), Error);
      for (const float value : y.values()) CHECK(value == 0.0F);
    }
    TestTensor y(DType::f32, {2, 33});
    Case unknown(queue, {2, 2, 3, 33, 20}, DType::f32, plain_relu2);
    unknown.activation = unknown_activation;
    CHECK_THROWS_WITH_AS(unknown.run(queue, 0, 2, y),
                         "moe_experts: the activation's function exists, got 99", Error);
    const auto bytes = static_cast<std::int64_t>(moe_experts_workspace_bytes(c.op_shape(2)));
    const Buffer small(Device::cpu, static_cast<std::size_t>(bytes) - 1);
    CHECK_THROWS_AS(moe_experts(queue, {.x = c.x,
                                        .chosen = c.chosen,
                                        .weights = c.weights,
                                        .gate_up = &c.up,
                                        .down = &c.down,
                                        .y = y,
                                        .workspace = small.tensor(0, DType::u8, {bytes - 1})}),
                    Error);
  }
}

}  // namespace moe_experts_test
