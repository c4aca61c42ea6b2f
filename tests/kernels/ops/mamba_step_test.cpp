#include "kernels/ops/mamba_step.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/base/error.h"
#include "kernels/ops/causal_conv.h"
#include "kernels/ops/ssd.h"
#include "tests/kernels/support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr std::int64_t tokens = 3, heads = 4, rows = 6, columns = 16, groups = 2, slots = 5;
constexpr std::int64_t inner = heads * rows, channels = inner + 2 * groups * columns;

struct Inputs {
  explicit Inputs(DType dtype, DType state_type)
      : x(random_tensor(dtype, {tokens, channels}, 1, 1.0F, {3, 1})),
        gate(random_tensor(dtype, {tokens, inner}, 2)),
        dt(random_tensor(dtype, {tokens, heads}, 3)),
        conv_weight(random_tensor(DType::f32, {channels, 4}, 4)),
        conv_bias(random_tensor(DType::f32, {channels}, 5)),
        windows(random_tensor(dtype, {slots, channels, 3}, 6, 1.0F, {5, 0})),
        a_log(random_tensor(DType::f32, {heads}, 7)),
        d(random_tensor(DType::f32, {heads}, 8)),
        dt_bias(random_tensor(DType::f32, {heads}, 9)),
        state(random_tensor(state_type, {slots, heads, rows, columns}, 10, 1.0F, {7, 0})),
        y(dtype, {tokens, inner}, {2, 1}),
        convolved(dtype, {tokens, channels}) {}

  MambaStep op(const Table& read, const Table& write, const Table& tickets) const {
    return {.x = x,
            .gate = gate,
            .dt = dt,
            .conv_weight = conv_weight,
            .conv_bias = conv_bias,
            .windows = windows,
            .a_log = a_log,
            .d = d,
            .dt_bias = dt_bias,
            .state = state,
            .read_slot = read,
            .write_slot = write,
            .y = y,
            .convolved = convolved,
            .tickets = tickets,
            .groups = groups,
            .dt_max = 5.0F};
  }

  TestTensor x, gate, dt, conv_weight, conv_bias, windows, a_log, d, dt_bias, state, y, convolved;
};

TEST_SUITE("kernels/ops/mamba_step") {
  TEST_CASE("is its parts, one token per sequence, with the same bits in slots and windows") {
    const Table read{2, -1, 0}, write{2, 4, 1}, tickets{0, 0, 0}, begins{0, 1, 2, 3};
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Queue queue = test_queue(isa, 2);
        const Inputs step(dtype, DType::f32), parts(dtype, DType::f32);
        mamba_step(queue, step.op(read, write, tickets));
        causal_conv(queue, {.x = parts.x,
                            .weight = parts.conv_weight,
                            .bias = parts.conv_bias,
                            .windows = parts.windows,
                            .span_begin = begins,
                            .read_slot = read,
                            .write_slot = write,
                            .y = parts.convolved});
        ssd(queue, {.x = parts.convolved,
                    .dt = parts.dt,
                    .a_log = parts.a_log,
                    .d = parts.d,
                    .dt_bias = parts.dt_bias,
                    .state = parts.state,
                    .span_begin = begins,
                    .read_slot = read,
                    .write_slot = write,
                    .y = parts.y,
                    .groups = groups,
                    .dt_max = 5.0F});
        CHECK(step.state.everything() == parts.state.everything());
        CHECK(step.windows.everything() == parts.windows.everything());
        CHECK(step.y.guards_intact());
        for (std::int64_t i = 0; i < tokens * inner; ++i) {
          const double z = parts.gate.get(i);
          const double expected = parts.y.get(i) * (z / (1.0 + std::exp(-z)));
          const double bound = dtype == DType::bf16 ? 0x1p-8 : 1e-6;
          REQUIRE(std::fabs(step.y.get(i) - expected) <= bound * std::fabs(expected) + 1e-12);
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    const Table slots_of{0, 1, 2}, tickets{0, 0, 0};
    const Inputs step(DType::f32, DType::f32);
    Queue queue = test_queue(Isa::plain);
    MambaStep op = step.op(slots_of, slots_of, tickets);
    op.y = op.gate;
    CHECK_THROWS_WITH_AS(mamba_step(queue, op), "mamba_step: y is not gate, got 0", Error);
  }
}

}  // namespace
