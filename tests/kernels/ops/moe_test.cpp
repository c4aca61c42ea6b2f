#include "kernels/ops/moe.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/linear/linear.h"
#include "kernels/ops/moe_experts.h"
#include "kernels/ops/rms_norm.h"
#include "tests/kernels/ops/moe_case.h"
#include "tests/kernels/support.h"

namespace ops_moe_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

using Score = Routing::Score;
const Routing softmax_routing = {.score = Score::softmax},
              normal_routing = {.score = Score::softmax, .renormalize = true},
              sigmoid_routing = {.score = Score::sigmoid,
                                 .renormalize = true,
                                 .renormalize_epsilon = 1e-6F,
                                 .scale = 2.5F},
              grouped_routing = {.score = Score::sigmoid,
                                 .renormalize = true,
                                 .renormalize_epsilon = 1e-20F,
                                 .scale = 5.0F,
                                 .groups = 5,
                                 .active_groups = 3},
              narrow_routing = {.score = Score::sigmoid, .groups = 4, .active_groups = 1};

/// Every kind of block that a family has, in odd sizes.
const MoeCase moe_cases[] = {
    {.tokens = 7,
     .hidden = 40,
     .experts = 6,
     .active = 2,
     .intermediate = 24,
     .shared = 20,
     .scale = 0.7F},
    {.tokens = 5,
     .hidden = 33,
     .experts = 9,
     .active = 3,
     .intermediate = 21,
     .routing = softmax_routing},
    {.tokens = 9,
     .hidden = 72,
     .experts = 48,
     .active = 10,
     .intermediate = 16,
     .shared = 56,
     .routing = normal_routing,
     .has_shared_gate = true},
    {.tokens = 6,
     .hidden = 40,
     .experts = 12,
     .active = 4,
     .intermediate = 29,
     .routing = sigmoid_routing,
     .has_bias = true},
    {.tokens = 8,
     .hidden = 48,
     .experts = 16,
     .active = 6,
     .intermediate = 40,
     .shared = 72,
     .activation = plain_relu2,
     .routing = sigmoid_routing,
     .has_bias = true,
     .router_is_f32 = true},
    {.tokens = 6,
     .hidden = 64,
     .experts = 40,
     .active = 22,
     .intermediate = 37,
     .shared = 88,
     .activation = plain_relu2,
     .routing = grouped_routing,
     .has_bias = true,
     .latent = 24},
    {.tokens = 3,
     .hidden = 30,
     .experts = 8,
     .active = 2,
     .intermediate = 11,
     .shared = 7,
     .routing = narrow_routing,
     .has_shared_gate = true,
     .router_is_f32 = true,
     .latent = 13,
     .scale = 0.5F},
    {.tokens = 2,
     .hidden = 16,
     .experts = 1,
     .active = 1,
     .intermediate = 1,
     .shared = 1,
     .activation = plain_relu2,
     .has_shared_gate = true},
    {.tokens = 4,
     .hidden = 24,
     .experts = 5,
     .active = 2,
     .intermediate = 9,
     .shared = 10,
     .routing = sigmoid_routing,
     .has_shared_gate = true,
     .router_is_f32 = true,
     .shared_gate_is_f32 = true},
    {.tokens = 5,
     .hidden = 40,
     .experts = 6,
     .active = 2,
     .intermediate = 24,
     .shared = 12,
     .activation = gated_relu2,
     .routing = sigmoid_routing},
    {.tokens = 5,
     .hidden = 40,
     .experts = 6,
     .active = 2,
     .intermediate = 24,
     .shared = 12,
     .activation = plain_silu,
     .routing = sigmoid_routing},
    {.tokens = 5,
     .hidden = 40,
     .experts = 6,
     .active = 2,
     .intermediate = 24,
     .shared = 12,
     .activation = gated_gelu,
     .routing = normal_routing},
    {.tokens = 6,
     .hidden = 48,
     .experts = 8,
     .active = 4,
     .intermediate = 29,
     .activation = clamped_swiglu,
     .has_biases = true},
    {.tokens = 7,
     .hidden = 70,
     .experts = 6,
     .active = 2,
     .intermediate = 37,
     .shared = 20,
     .activation = plain_gelu,
     .routing = sigmoid_routing,
     .has_bias = true,
     .router_is_f32 = true,
     .latent = 66,
     .scale = 0.7F,
     .has_biases = true},
    {.tokens = 7,
     .hidden = 40,
     .experts = 6,
     .active = 1,
     .intermediate = 24,
     .shared = 20,
     .routing = {.score = Score::sigmoid},
     .weighs_input = true},
};

/// A case's weights as the queue packs them, or as they were published.
struct Packed {
  Packed(Queue& queue, const MoeNumbers& numbers, bool published) {
    const auto weight = [&](const MoeMatrix& matrix) {
      if (!matrix.is_there()) return Weight();
      if (published) return Weight::view(matrix.source);
      return Weight::pack(queue, matrix.source, matrix.dtype);
    };
    router = weight(numbers.router);
    gate_up = weight(numbers.gate_up);
    down = weight(numbers.down);
    shared_gate_up = weight(numbers.shared_gate_up);
    shared_down = weight(numbers.shared_down);
    shared_gate = weight(numbers.shared_gate);
    latent_in = weight(numbers.latent_in);
    latent_out = weight(numbers.latent_out);
  }
  Weight router, gate_up, down, shared_gate_up, shared_down, shared_gate, latent_in, latent_out;
};

/// Rows begin .. begin+count-1 of y, in place, in a workspace of just the right size.
void run(Queue& queue, const MoeNumbers& numbers, const Packed& w, TestTensor& y,
         std::int64_t begin, std::int64_t count) {
  const MoeCase& c = numbers.c;
  MoeShape shape = c.shape(numbers.dtype);
  shape.tokens = count;
  const auto bytes = static_cast<std::int64_t>(moe_workspace_bytes(Device::cpu, shape));
  const Buffer room(Device::cpu, static_cast<std::size_t>(bytes));
  std::fill_n(room.data(), room.bytes(), std::byte{0});
  const auto there = [](const Weight& weight) { return weight.rows() > 0 ? &weight : nullptr; };
  fused_moe(queue, {.x = y.view().rows(begin, count),
                    .norm = {.weight = numbers.norm, .eps = 1e-5F},
                    .router = &w.router,
                    .gate_up = &w.gate_up,
                    .down = &w.down,
                    .shared_gate_up = there(w.shared_gate_up),
                    .shared_down = there(w.shared_down),
                    .bias = c.has_bias ? Tensor(numbers.bias) : Tensor(),
                    .routing = c.routing,
                    .active = c.active,
                    .activation = c.activation,
                    .y = y.view().rows(begin, count),
                    .workspace = room.tensor(0, DType::u8, {bytes}),
                    .scale = c.scale,
                    .shared_gate = there(w.shared_gate),
                    .latent_in = there(w.latent_in),
                    .latent_out = there(w.latent_out),
                    .router_bias = c.has_biases ? Tensor(numbers.router_bias) : Tensor(),
                    .gate_up_bias = c.has_biases ? Tensor(numbers.gate_up_bias) : Tensor(),
                    .down_bias = c.has_biases ? Tensor(numbers.down_bias) : Tensor(),
                    .weighs_input = c.weighs_input});
}

/// The block by its parts, on a copy of the residual stream: neither gates nor latent experts.
TestTensor by_parts(Queue& queue, const MoeNumbers& numbers, const Packed& w) {
  const MoeCase& c = numbers.c;
  const DType dtype = numbers.dtype;
  TestTensor y = numbers.x, n(dtype, {c.tokens, c.hidden}),
             logits(DType::f32, {c.tokens, c.experts}), chosen(DType::i32, {c.tokens, c.active}),
             weights(DType::f32, {c.tokens, c.active});
  rms_norm(queue, {.x = numbers.x, .weight = numbers.norm, .y = n, .eps = 1e-5F});
  if (c.shared > 0) {
    const TestTensor both(dtype, {c.tokens, 2 * c.shared}), inner(dtype, {c.tokens, c.shared});
    linear(queue, {.x = n, .weight = &w.shared_gate_up, .y = both});
    gated_activation(queue, {.x = both, .y = inner});
    linear(queue, {.x = inner, .weight = &w.shared_down, .y = y, .scale = c.scale, .add = true});
  }
  linear(queue, {.x = n, .weight = &w.router, .y = logits});
  moe_route(queue,
            {.logits = logits, .bias = {}, .chosen = chosen, .weights = weights, .routing = {}});
  const auto bytes = static_cast<std::int64_t>(moe_experts_workspace_bytes(
      {c.tokens, c.active, c.experts, c.hidden, c.intermediate, dtype}));
  const Buffer room(Device::cpu, static_cast<std::size_t>(bytes));
  moe_experts(queue, {.x = n,
                      .chosen = chosen,
                      .weights = weights,
                      .gate_up = &w.gate_up,
                      .down = &w.down,
                      .y = y,
                      .workspace = room.tensor(0, DType::u8, {bytes}),
                      .scale = c.scale,
                      .add = true});
  return y;
}

/// The largest error in terms of what the block adds at most.
double error_of(Queue& queue, const MoeNumbers& numbers, const TestTensor& answer) {
  const MoeCase& c = numbers.c;
  TestTensor normed(numbers.dtype, {c.tokens, c.hidden});
  rms_norm(queue, {.x = numbers.x, .weight = numbers.norm, .y = normed, .eps = 1e-5F});
  double worst = 0, largest = 0;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    Doubles n(static_cast<std::size_t>(c.hidden));
    for (std::size_t i = 0; i < n.size(); ++i) {
      n[i] = static_cast<double>(normed.get(t * c.hidden + static_cast<std::int64_t>(i)));
    }
    const Doubles added = numbers.added(n);
    for (std::size_t i = 0; i < n.size(); ++i) {
      const std::int64_t at = t * c.hidden + static_cast<std::int64_t>(i);
      const double before = static_cast<double>(numbers.x.get(at));
      const double error = std::fabs(static_cast<double>(answer.get(at)) - before - added[i]);
      worst = std::max(worst, std::isnan(error) ? INFINITY : error);
      largest = std::max(largest, std::fabs(before) + std::fabs(added[i]));
    }
  }
  return worst / largest;
}

TEST_SUITE("kernels/ops/moe") {
  TEST_CASE("every kind of router, shared expert and latent experts is the formula's") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      for (const MoeCase& c : moe_cases) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          for (const bool published : {false, true}) {
            CAPTURE(kernels::testing::name_of(isa));
            CAPTURE(c.experts);
            CAPTURE(published);
            const MoeNumbers numbers(c, dtype);
            const Packed weights(queue, numbers, published);
            TestTensor y = numbers.x;
            run(queue, numbers, weights, y, 0, c.tokens);
            CHECK(y.guards_intact());
            CHECK(error_of(queue, numbers, y) < (dtype == DType::bf16 ? 0.01 : 3e-6));
          }
        }
      }
    }
  }

  TEST_CASE("a row's answer is the same bits alone and among others, on any threads") {
    for (const Isa isa : available_isas()) {
      Queue one = test_queue(isa, 1), three = test_queue(isa, 3);
      for (const MoeCase& c : moe_cases) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          const MoeNumbers numbers(c, dtype);
          const Packed weights(one, numbers, false);
          TestTensor whole = numbers.x, cut = numbers.x;
          run(three, numbers, weights, whole, 0, c.tokens);
          for (std::int64_t t = c.tokens; t-- > 0;) run(one, numbers, weights, cut, t, 1);
          CHECK(same_bytes(whole, cut));
        }
      }
    }
  }

  TEST_CASE("a router of f32 sees what a rounding to bf16 would hide") {
    Queue queue = test_queue(best_isa());
    const MoeCase c = {.tokens = 1, .hidden = 2, .experts = 2, .active = 1, .intermediate = 1};
    for (const float nudge : {-0x1p-14F, 0x1p-14F}) {
      MoeNumbers numbers(c, DType::bf16);
      TestTensor router(DType::f32, {2, 2});
      for (std::int64_t i = 0; i < 4; ++i) router.set(i, 1.0F);
      router.set(2, 1.0F + nudge);
      const auto bytes = router.packed();
      for (const bool published : {false, true}) {
        Packed weights(queue, numbers, published);
        const WeightSource source{DType::f32, 1, 2, 2, bytes};
        weights.router = published ? Weight::view(source) : Weight::pack(queue, source, DType::f32);
        TestTensor y(DType::bf16, {1, 2}), first(DType::bf16, {1, 2});
        for (std::int64_t i = 0; i < 2; ++i) y.set(i, 1.0F);
        // The second expert gives nothing.
        std::vector<std::byte> down = numbers.down.bytes;
        std::fill(down.begin() + std::ssize(down) / 2, down.end(), std::byte{0});
        const WeightSource half(DType::bf16, 2, 2, 1, down);
        weights.down = published ? Weight::view(half) : Weight::pack(queue, half, DType::bf16);
        numbers.c.router_is_f32 = true;
        run(queue, numbers, weights, y, 0, 1);
        CHECK((y.get(0) == 1.0F) == (nudge > 0));
      }
    }
  }

  TEST_CASE("is its parts, in place, with a shared expert and without") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool is_shared : {true, false}) {
          Queue queue = test_queue(isa, 2);
          MoeCase c = moe_cases[0];
          if (!is_shared) c.shared = 0;
          const MoeNumbers numbers(c, dtype);
          const Packed weights(queue, numbers, false);
          TestTensor y = numbers.x;
          run(queue, numbers, weights, y, 0, c.tokens);
          CHECK(y.everything() == by_parts(queue, numbers, weights).everything());
        }
      }
    }
  }

  TEST_CASE("a router reads rows of its own, and an answer may replace y") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Queue queue = test_queue(best_isa(), 2);
      MoeCase c = moe_cases[1];
      const MoeNumbers numbers(c, dtype);
      const Packed w(queue, numbers, false);
      const TestTensor& x = numbers.x;
      const TestTensor normed(dtype, {c.tokens, c.hidden}),
          other = random_tensor(dtype, {c.tokens, c.hidden}, 77);
      rms_norm(queue, {.x = x, .weight = numbers.norm, .y = normed, .eps = 1e-5F});
      const auto bytes =
          static_cast<std::int64_t>(moe_workspace_bytes(Device::cpu, c.shape(dtype)));
      const Buffer room(Device::cpu, static_cast<std::size_t>(bytes));
      const auto answer = [&](const Tensor& router_x, bool add) {
        TestTensor y(dtype, {c.tokens, c.hidden});
        for (std::int64_t i = 0; i < y.size() && !add; ++i) y.set(i, NAN);
        std::fill_n(room.data(), room.bytes(), std::byte{0});
        fused_moe(queue, {.x = x,
                          .norm = {.weight = numbers.norm, .eps = 1e-5F},
                          .router = &w.router,
                          .gate_up = &w.gate_up,
                          .down = &w.down,
                          .routing = c.routing,
                          .active = c.active,
                          .activation = c.activation,
                          .y = y,
                          .workspace = room.tensor(0, DType::u8, {bytes}),
                          .scale = 0.7F,
                          .router_x = router_x,
                          .add = add});
        return y;
      };
      const TestTensor usual = answer({}, true);
      CHECK(same_bytes(answer(normed, true), usual));
      CHECK(!same_bytes(answer(other, true), usual));
      CHECK(same_bytes(answer({}, false), usual));
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const MoeNumbers numbers(moe_cases[0], DType::f32);
    const Packed w(queue, numbers, false);
    const TestTensor x = numbers.x, other = x;
    const FusedMoe right = {.x = x,
                            .router = &w.router,
                            .gate_up = &w.gate_up,
                            .down = &w.down,
                            .active = numbers.c.active,
                            .y = other};
    const auto refused = [&](const char* rule, const auto& spoil) {
      FusedMoe op = right;
      spoil(op);
      CHECK_THROWS_WITH_AS(fused_moe(queue, op), rule, Error);
    };
    refused("fused_moe: the activation's function exists, got 99",
            [](FusedMoe& op) { op.activation = unknown_activation; });
    refused("fused_moe: y is x only where there is a norm, got 0",
            [](FusedMoe& op) { op.y = op.x; });
    refused("fused_moe: a shared expert's gate has a shared expert, got 0",
            [&](FusedMoe& op) { op.shared_gate = &w.router; });
    refused("fused_moe: latent experts have both projections, got 0",
            [&](FusedMoe& op) { op.latent_in = &w.router; });
    refused("fused_moe: what replaces y is of experts alone, neither shared nor latent, got 0",
            [&](FusedMoe& op) {
              op.add = false;
              op.shared_gate_up = &w.shared_gate_up;
              op.shared_down = &w.shared_down;
            });
    refused("fused_moe: one expert that is not latent sees a weighed input, got 2",
            [](FusedMoe& op) { op.weighs_input = true; });
  }
}

}  // namespace

}  // namespace ops_moe_test
