#include "kernels/ops/moe_route.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/kernels/support.h"

namespace moe_route_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Routed {
  Routed(std::int64_t tokens, std::int64_t count)
      : chosen(DType::i32, {tokens, count}, {2, 0}), weights(DType::f32, {tokens, count}, {3, 0}) {}
  TestTensor chosen, weights;
};

Routed route(Queue& queue, const TestTensor& logits, std::int64_t count, Routing routing = {},
             const Tensor& bias = {}) {
  Routed routed(logits.view().dim(0), count);
  moe_route(queue, {.logits = logits,
                    .bias = bias,
                    .chosen = routed.chosen,
                    .weights = routed.weights,
                    .routing = routing});
  CHECK(routed.chosen.guards_intact());
  CHECK(routed.weights.guards_intact());
  return routed;
}

TestTensor logits_of(std::vector<float> values) {
  TestTensor logits(DType::f32, {1, static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    logits.set(static_cast<std::int64_t>(i), values[i]);
  }
  return logits;
}

}  // namespace

TEST_SUITE("kernels/ops/moe_route") {
  TEST_CASE("the k largest, largest first, with the softmax of their logits") {
    Queue queue = test_queue(best_isa(), 2);
    for (const DType type : {DType::f32, DType::bf16}) {
      constexpr std::int64_t tokens = 40, experts = 64, count = 6;
      const TestTensor logits = random_tensor(type, {tokens, experts}, 1, 2.0F, {1, 1});
      const Routed routed = route(queue, logits, count);
      for (std::int64_t t = 0; t < tokens; ++t) {
        std::vector<std::int64_t> order(experts);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
          return logits.get(t * experts + a) > logits.get(t * experts + b);
        });
        double sum = 0;
        for (std::int64_t j = 0; j < count; ++j) {
          sum += std::exp(logits.get(t * experts + order[static_cast<std::size_t>(j)]));
        }
        for (std::int64_t j = 0; j < count; ++j) {
          const std::int64_t e = order[static_cast<std::size_t>(j)];
          CHECK(routed.chosen.get(t * count + j) == static_cast<float>(e));
          CHECK(routed.weights.get(t * count + j) ==
                doctest::Approx(std::exp(logits.get(t * experts + e)) / sum).epsilon(1e-5));
        }
      }
    }
  }

  TEST_CASE("expert_scale is a factor on the weights, which it does not choose") {
    Queue queue = test_queue(best_isa(), 2);
    const TestTensor logits = random_tensor(DType::f32, {9, 12}, 1, 2.0F);
    const TestTensor scale = random_tensor(DType::f32, {12}, 2);
    const Routing routing = {.score = Routing::Score::softmax, .renormalize = true, .scale = 0.5F};
    const Routed plain = route(queue, logits, 3, routing);
    const Routed scaled(9, 3);
    moe_route(queue, {.logits = logits,
                      .bias = {},
                      .chosen = scaled.chosen,
                      .weights = scaled.weights,
                      .routing = routing,
                      .expert_scale = scale});
    CHECK(same_bytes(plain.chosen, scaled.chosen));
    for (std::int64_t i = 0; i < 27; ++i) {
      const auto expert = static_cast<std::int64_t>(plain.chosen.get(i));
      CHECK(scaled.weights.get(i) == plain.weights.get(i) * scale.get(expert));
    }
  }

  TEST_CASE("a token's route is the same bits alone and among others") {
    const TestTensor logits = random_tensor(DType::bf16, {300, 72}, 2);
    Queue one = test_queue(Isa::plain, 1), three = test_queue(best_isa(), 3);
    const Routed all = route(three, logits, 10);
    for (std::int64_t t = 0; t < 300; t += 23) {
      Routed single(1, 10);
      moe_route(one, {.logits = logits.view().rows(t, 1),
                      .bias = {},
                      .chosen = single.chosen,
                      .weights = single.weights,
                      .routing = {}});
      for (std::int64_t j = 0; j < 10; ++j) {
        CHECK(single.chosen.get(j) == all.chosen.get(t * 10 + j));
        CHECK(single.weights.get(j) == all.weights.get(t * 10 + j));
      }
    }
  }

  TEST_CASE("ties go to the lower expert, all of them may be chosen") {
    Queue queue = test_queue(best_isa(), 1);
    const Routed tied = route(queue, logits_of({1, 3, 3, 2, 3, 1}), 6);
    const std::vector<float> order = {1, 2, 4, 3, 0, 5};
    CHECK(tied.chosen.values() == order);
    const Routed infinite = route(queue, logits_of({-INFINITY, INFINITY, 0}), 3);
    CHECK(infinite.chosen.values() == std::vector<float>{1, 2, 0});
  }

  TEST_CASE("a NaN is never chosen first and never lost: the weights of its token become NaN") {
    Queue queue = test_queue(best_isa(), 1);
    for (const Routing::Score score :
         {Routing::Score::softmax_of_selected, Routing::Score::softmax, Routing::Score::sigmoid}) {
      TestTensor logits(DType::f32, {2, 4});
      for (std::int64_t i = 0; i < 8; ++i) logits.set(i, static_cast<float>(i % 3));
      logits.set(4, NAN);
      const Routed routed = route(queue, logits, 2, {.score = score, .renormalize = true});
      for (std::int64_t j = 0; j < 2; ++j) {
        CHECK(std::isfinite(routed.weights.get(j)));
        CHECK(std::isnan(routed.weights.get(2 + j)));
        CHECK(routed.chosen.get(2 + j) >= 0.0F);
      }
    }
    const Routed one = route(queue, logits_of({NAN, -5, NAN, 7}), 2);
    CHECK(one.chosen.values() == std::vector<float>{3, 1});
    const Routed all = route(queue, logits_of({NAN, NAN, NAN}), 3);
    CHECK(all.chosen.values() == std::vector<float>{0, 1, 2});
    TestTensor bias(DType::f32, {3});
    bias.set(2, NAN);
    const Routed biased =
        route(queue, logits_of({1, 2, 3}), 1, {.score = Routing::Score::sigmoid}, bias);
    CHECK(std::isnan(biased.weights.get(0)));
  }

  TEST_CASE("the other scores: softmax of all, sigmoid with a bias that only selects") {
    Queue queue = test_queue(best_isa(), 1);
    const TestTensor logits = logits_of({0.5F, 2.0F, -1.0F, 1.0F});
    const Routed all = route(queue, logits, 2, {.score = Routing::Score::softmax});
    const double sum = std::exp(0.5) + std::exp(2.0) + std::exp(-1.0) + std::exp(1.0);
    CHECK(all.weights.get(0) == doctest::Approx(std::exp(2.0) / sum));
    CHECK(all.weights.get(1) == doctest::Approx(std::exp(1.0) / sum));

    TestTensor bias(DType::f32, {4});
    bias.set(2, 10.0F);
    const Routing sigmoid = {.score = Routing::Score::sigmoid, .renormalize = true, .scale = 2.5F};
    const Routed biased = route(queue, logits, 2, sigmoid, bias);
    CHECK(biased.chosen.values() == std::vector<float>{2, 1});
    const double low = 1 / (1 + std::exp(1.0)), high = 1 / (1 + std::exp(-2.0));
    CHECK(biased.weights.get(0) == doctest::Approx(2.5 * low / (low + high)));
    CHECK(biased.weights.get(1) == doctest::Approx(2.5 * high / (low + high)));
  }

  TEST_CASE("groups: only experts of those whose two best are best, ties to the lower group") {
    Queue queue = test_queue(best_isa(), 2);
    const Routing two = {.score = Routing::Score::sigmoid, .groups = 3, .active_groups = 2};
    // Two good ones beat one that is better than both.
    const TestTensor logits = logits_of({3, -9, -9, 1, 1, -9, 0.5F, 0.75F, -9});
    CHECK(route(queue, logits, 2, two).chosen.values() == std::vector<float>{3, 4});
    CHECK(route(queue, logits, 6, two).chosen.values() == std::vector<float>{3, 4, 7, 6, 5, 8});
    const Routing raw = {.groups = 3, .active_groups = 1};
    CHECK(route(queue, logits_of({5, 1, 2, 4, 3, 3}), 2, raw).chosen.values() ==
          std::vector<float>{0, 1});
    CHECK(route(queue, logits_of({-INFINITY, 1, NAN, NAN, 3, 3}), 2, raw).chosen.values() ==
          std::vector<float>{4, 5});
    TestTensor bias(DType::f32, {6});
    bias.set(2, 2.0F);
    const Routed biased = route(queue, logits_of({0, 0, -1, -1, 0, 0}), 1,
                                {.score = Routing::Score::sigmoid, .groups = 3}, bias);
    CHECK(biased.chosen.get(0) == 2.0F);
    CHECK(biased.weights.get(0) == doctest::Approx(1 / (1 + std::exp(1.0))));
  }

  TEST_CASE("groups at random: a choice among the experts of the groups that were kept") {
    Queue queue = test_queue(best_isa(), 2);
    constexpr std::int64_t tokens = 50, experts = 512, count = 22, size = 64;
    const TestTensor logits = random_tensor(DType::f32, {tokens, experts}, 5, 2.0F);
    const TestTensor bias = random_tensor(DType::f32, {experts}, 6, 0.2F);
    const Routing routing = {
        .score = Routing::Score::sigmoid, .renormalize = true, .groups = 8, .active_groups = 4};
    const Routed routed = route(queue, logits, count, routing, bias);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<std::pair<float, std::int64_t>> groups, eligible;
      std::vector<float> keys;
      for (std::int64_t e = 0; e < experts; ++e) {
        keys.push_back(1.0F / (1.0F + std::exp(-logits.get(t * experts + e))) + bias.get(e));
      }
      for (std::int64_t g = 0; g < 8; ++g) {
        std::vector<float> own(keys.begin() + g * size, keys.begin() + (g + 1) * size);
        std::sort(own.rbegin(), own.rend());
        groups.emplace_back(-(own[0] + own[1]), g);
      }
      std::sort(groups.begin(), groups.end());
      for (std::int64_t i = 0; i < 4; ++i) {
        const std::int64_t g = groups[static_cast<std::size_t>(i)].second;
        for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
          eligible.emplace_back(-keys[static_cast<std::size_t>(e)], e);
        }
      }
      std::sort(eligible.begin(), eligible.end());
      double sum = 0;
      for (std::int64_t j = 0; j < count; ++j) {
        CHECK(routed.chosen.get(t * count + j) ==
              static_cast<float>(eligible[static_cast<std::size_t>(j)].second));
        sum += static_cast<double>(routed.weights.get(t * count + j));
      }
      CHECK(sum == doctest::Approx(1.0).epsilon(1e-5));
    }
  }

  TEST_CASE("shapes against the contract are errors") {
    Queue queue = test_queue(best_isa(), 1);
    CHECK_THROWS_AS(route(queue, logits_of({1, 2, 3}), 4), Error);
    const TestTensor few(DType::f32, {2});
    CHECK_THROWS_AS(route(queue, logits_of({1, 2, 3}), 1, {}, few), Error);
    for (const Routing& bad :
         {Routing{.groups = 0}, Routing{.groups = 4, .active_groups = 4},
          Routing{.groups = 6, .active_groups = 6}, Routing{.groups = 2, .active_groups = 0},
          Routing{.groups = 2, .active_groups = 3}, Routing{.groups = 3, .active_groups = 1}}) {
      CHECK_THROWS_AS(route(queue, logits_of({1, 2, 3, 4, 5, 6}), 3, bad), Error);
    }
  }
}

}  // namespace moe_route_test
