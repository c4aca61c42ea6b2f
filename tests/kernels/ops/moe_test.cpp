#include "kernels/ops/moe.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/linear/linear.h"
#include "kernels/ops/moe_experts.h"
#include "kernels/ops/rms_norm.h"
#include "tests/kernels/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr std::int64_t tokens = 7, hidden = 40, experts = 6, intermediate = 24, shared = 20,
                       active = 2;

struct Matrix {
  Matrix(Queue& queue, DType dtype, std::int64_t count, std::int64_t rows, std::int64_t columns,
         unsigned seed)
      : bytes(random_tensor(dtype, {count, rows, columns}, seed, 0.3F).packed()),
        packed(Weight::pack(queue, {dtype, count, rows, columns, bytes}, dtype)) {}
  std::vector<std::byte> bytes;
  Weight packed;
};

struct Weights {
  Weights(Queue& queue, DType dtype)
      : router(queue, dtype, 1, experts, hidden, 1),
        gate_up(queue, dtype, experts, 2 * intermediate, hidden, 2),
        down(queue, dtype, experts, hidden, intermediate, 3),
        shared_gate_up(queue, dtype, 1, 2 * shared, hidden, 4),
        shared_down(queue, dtype, 1, hidden, shared, 5) {}
  Matrix router, gate_up, down, shared_gate_up, shared_down;
};

/// The block by its parts, on a copy of the residual stream.
TestTensor by_parts(Queue& queue, const Weights& w, const TestTensor& x, const Tensor& norm,
                    bool is_shared) {
  const DType dtype = x.view().dtype;
  TestTensor y = x, n(dtype, {tokens, hidden}), logits(DType::f32, {tokens, experts}),
             chosen(DType::i32, {tokens, active}), weights(DType::f32, {tokens, active}),
             both(dtype, {tokens, 2 * shared}), inner(dtype, {tokens, shared});
  rms_norm(queue, {.x = x, .weight = norm, .y = n});
  if (is_shared) {
    linear(queue, {.x = n, .weight = &w.shared_gate_up.packed, .y = both});
    gated_activation(queue, {.x = both, .y = inner});
    linear(queue,
           {.x = inner, .weight = &w.shared_down.packed, .y = y, .scale = 0.7F, .add = true});
  }
  linear(queue, {.x = n, .weight = &w.router.packed, .y = logits});
  moe_route(queue,
            {.logits = logits, .bias = {}, .chosen = chosen, .weights = weights, .routing = {}});
  const auto bytes = static_cast<std::int64_t>(
      moe_experts_workspace_bytes({tokens, active, experts, hidden, intermediate, dtype}));
  const Buffer room(Device::cpu, static_cast<std::size_t>(bytes));
  moe_experts(queue, {.x = n,
                      .chosen = chosen,
                      .weights = weights,
                      .gate_up = &w.gate_up.packed,
                      .down = &w.down.packed,
                      .y = y,
                      .workspace = room.tensor(0, DType::u8, {bytes}),
                      .scale = 0.7F,
                      .add = true});
  return y;
}

TEST_SUITE("kernels/ops/moe") {
  TEST_CASE("is its parts, in place, with a shared expert and without") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool is_shared : {true, false}) {
          Queue queue = test_queue(isa, 2);
          const Weights w(queue, dtype);
          const auto x = random_tensor(dtype, {tokens, hidden}, 6, 1.0F, {9, 0});
          const auto norm = random_tensor(DType::f32, {hidden}, 7);
          const auto bytes = static_cast<std::int64_t>(moe_workspace_bytes(
              Device::cpu,
              {tokens, active, experts, hidden, intermediate, is_shared ? shared : 0, dtype}));
          const Buffer room(Device::cpu, static_cast<std::size_t>(bytes));
          TestTensor y = x;
          moe(queue, {.x = y,
                      .norm = {.weight = norm},
                      .router = &w.router.packed,
                      .gate_up = &w.gate_up.packed,
                      .down = &w.down.packed,
                      .shared_gate_up = is_shared ? &w.shared_gate_up.packed : nullptr,
                      .shared_down = is_shared ? &w.shared_down.packed : nullptr,
                      .active = active,
                      .y = y,
                      .workspace = room.tensor(0, DType::u8, {bytes}),
                      .scale = 0.7F});
          CHECK(y.everything() == by_parts(queue, w, x, norm, is_shared).everything());
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const Weights w(queue, DType::f32);
    const TestTensor x(DType::f32, {tokens, hidden});
    CHECK_THROWS_WITH_AS(moe(queue, {.x = x,
                                     .router = &w.router.packed,
                                     .gate_up = &w.gate_up.packed,
                                     .down = &w.down.packed,
                                     .active = active,
                                     .y = x}),
                         "moe: y is x only where there is a norm, got 0", Error);
  }
}

}  // namespace
