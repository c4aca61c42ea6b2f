#include <doctest/doctest.h>

#include <limits>

#include "kernels/cuda/routes.h"
#include "tests/cuda/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

using Score = Routing::Score;

struct Case {
  std::int64_t tokens, experts, active;
  Routing routing;
  DType logits;
  bool bias;
};
const Case cases[] = {
    {5, 64, 6, {}, DType::f32, false},
    {3, 97, 10, {.score = Score::softmax, .renormalize = true}, DType::f32, false},
    {2,
     128,
     6,
     {.score = Score::sigmoid, .renormalize = true, .renormalize_epsilon = 1e-20F, .scale = 2.5F},
     DType::f32,
     true},
    {9, 8, 8, {.score = Score::softmax, .scale = 0.5F}, DType::bf16, true},
    {1, 1, 1, {}, DType::f32, false},
    {2, 33, 33, {}, DType::bf16, false},
    {1, 4096, 40, {.score = Score::sigmoid}, DType::f32, true},
    {6,
     512,
     22,
     {.score = Score::sigmoid, .renormalize = true, .groups = 8, .active_groups = 4},
     DType::f32,
     true},
    {7, 64, 2, {.groups = 32, .active_groups = 1}, DType::f32, false},
    {5, 96, 64, {.score = Score::softmax, .groups = 3, .active_groups = 2}, DType::bf16, true},
};

/// Few distinct values, so that experts are often as good as each other, and a token each with NaN,
/// infinities and zeros of both signs.
TestTensor logits_of(const Case& c) {
  TestTensor logits(c.logits, {c.tokens, c.experts}, {3, 1});
  std::mt19937 random(3);
  const bool is_sparse = c.routing.score == Score::softmax_of_selected;
  for (std::int64_t i = 0; i < logits.size(); ++i) {
    const auto step = static_cast<float>(random() % (is_sparse ? 9 : 1000));
    logits.set(i, step / 250.0F - 2.0F);
  }
  const float odd[] = {NAN, -INFINITY, INFINITY, -0.0F, 0.0F};
  for (std::int64_t t = 1; t < c.tokens; ++t) {
    for (std::int64_t i = 0; i < 3; ++i) {
      logits.set(t * c.experts + (7 * i + t) % c.experts, odd[(t + i * (t > 2)) % 5]);
    }
  }
  return logits;
}

void check_case(const Case& c) {
  CAPTURE(c.experts);
  const TestTensor logits = logits_of(c);
  auto bias = random_tensor(DType::f32, {c.experts}, 4, 0.25F);
  for (std::int64_t e = 0; e < c.experts; ++e) bias.set(e, std::round(bias.get(e) * 32) / 32);
  TestTensor chosen(DType::i32, {c.tokens, c.active}, {2, 1});
  TestTensor weights(DType::f32, {c.tokens, c.active}, {1, 2});
  const DeviceTensor on_logits(logits), on_bias(bias), on_chosen(chosen), on_weights(weights);
  Queue plain = test_queue(Isa::plain);
  moe_route(plain, {.logits = logits,
                    .bias = c.bias ? Tensor(bias) : Tensor(),
                    .chosen = chosen,
                    .weights = weights,
                    .routing = c.routing});

  cuda::Stream stream;
  const cuda::Graph graph(stream, [&] {
    cuda::moe_route(stream, {.logits = on_logits,
                             .bias = c.bias ? Tensor(on_bias) : Tensor(),
                             .chosen = on_chosen,
                             .weights = on_weights,
                             .routing = c.routing});
  });
  for (int replay = 0; replay < 2; ++replay) graph.replay(stream);
  stream.wait();
  CHECK(on_chosen.fetch().everything() == chosen.everything());
  const TestTensor answer = on_weights.fetch();
  CHECK(answer.guards_intact());
  const double bound = static_cast<double>(c.experts + 16) * 0x1p-22;
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    const double is = answer.get(i), expected = weights.get(i);
    REQUIRE(std::isnan(is) == std::isnan(expected));
    if (!std::isnan(is)) REQUIRE(std::fabs(is - expected) <= bound * std::fabs(expected));
  }
}

TEST_SUITE("cuda/moe_route") {
  TEST_CASE("chooses as the plain loop does, ties and lost numbers too, and weighs within bounds") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const Case& c : cases) check_case(c);
    });
  }
}

}  // namespace
