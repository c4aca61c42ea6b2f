#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/recurrent_step.h"
#include "kernels/ops/ssd.h"
#include "tests/kernels/ops/recurrent_step_case.h"
#include "tests/kernels/support.h"

namespace ops_recurrent_step_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr std::int64_t used = 3;  ///< rows that have a sequence

DeltaStepCase case_of(DType dtype, DType state, bool tiled = false) {
  return {.key_heads = 2,
          .value_heads = 4,
          .rows = 6,
          .columns = 20,
          .dtype = dtype,
          .state = state,
          .tiled = tiled,
          .read = {2, -1, 0, -1, -1},
          .write = {2, 4, 1, -1, -1}};
}

void step(Queue& queue, const DeltaStepInputs& in, const Table& read, const Table& write,
          std::int32_t key_heads = 2, bool tiled = false) {
  const Table semaphores{0, 0, 0, 0, 0};
  delta_step(queue, in.op(read, write, semaphores, key_heads, tiled));
}

/// The parts by themselves, for the rows that have a sequence.
void run_parts(Queue& queue, const DeltaStepInputs& in, const Table& read, const Table& write,
               bool tiled) {
  const Table begins{0, 1, 2, 3};
  const Tensor convolved = in.convolved.view().rows(0, used);
  const Tensor from = Tensor(read).rows(0, used), to = Tensor(write).rows(0, used);
  causal_conv(queue, {.x = in.x.view().rows(0, used),
                      .weight = in.conv_weight,
                      .bias = in.conv_bias,
                      .windows = in.windows,
                      .span_begin = begins,
                      .read_slot = from,
                      .write_slot = to,
                      .y = convolved});
  delta_rule(queue, {.x = convolved,
                     .b = in.b.view().rows(0, used),
                     .a = in.a.view().rows(0, used),
                     .rate = in.rate,
                     .dt_bias = in.dt_bias,
                     .state = in.state,
                     .span_begin = begins,
                     .read_slot = from,
                     .write_slot = to,
                     .y = in.y.view().rows(0, used),
                     .shape = {.key_heads = 2, .tiled = tiled}});
}

TEST_SUITE("kernels/ops/delta_step") {
  TEST_CASE("is its parts for one token per sequence, to the bit, and leaves rows without a slot") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool tiled : {false, true}) {
          Queue queue = test_queue(isa, 2);
          const DType state = tiled ? DType::f32 : DType::bf16;
          const DeltaStepCase c = case_of(dtype, state, tiled);
          const Table read(c.read), write(c.write);
          const DeltaStepInputs whole(c), parts(c);
          step(queue, whole, read, write, c.key_heads, tiled);
          run_parts(queue, parts, read, write, tiled);
          CHECK(whole.state.everything() == parts.state.everything());
          CHECK(whole.windows.everything() == parts.windows.everything());
          CHECK(whole.y.everything() == parts.y.everything());
          CHECK(whole.state.everything() != DeltaStepInputs(c).state.everything());
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    const Table read{0, 1, 2, 3, 4}, write{0, 1, -1, 3, -1};
    const DeltaStepInputs in(case_of(DType::f32, DType::f32));
    Queue queue = test_queue(Isa::plain);
    CHECK_THROWS_WITH_AS(step(queue, in, read, write),
                         "delta_step: rows without a slot come last, got 3", Error);
    const Table chained{0, 1, 3, 2, 4}, used{1, 3, 0, 4, -1};
    CHECK_THROWS_WITH_AS(step(queue, in, chained, used),
                         "delta_step: no row continues the one before it, got 1", Error);
    CHECK_THROWS_WITH_AS(step(queue, in, read, write, 3),
                         "delta_step: key_heads divides value_heads, got 3", Error);
    CHECK_THROWS_WITH_AS(step(queue, in, read, write, 4),
                         "delta_step: x needs 128 in dimension 1, got 104", Error);
  }
}

MambaStepCase mamba_case(DType dtype) {
  return {.heads = 4,
          .rows = 6,
          .columns = 16,
          .groups = 2,
          .dtype = dtype,
          .read = {2, -1, 0, -1, -1},
          .write = {2, 4, 1, -1, -1}};
}

TEST_SUITE("kernels/ops/mamba_step") {
  TEST_CASE("is its parts for one token per sequence, to the bit, and leaves rows without a slot") {
    const Table begins{0, 1, 2, 3}, semaphores{0, 0, 0, 0, 0};
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Queue queue = test_queue(isa, 2);
        const MambaStepCase c = mamba_case(dtype);
        const Table read(c.read), write(c.write);
        const MambaStepInputs step(c), parts(c);
        mamba_step(queue, step.op(read, write, semaphores));
        const Tensor convolved = parts.convolved.view().rows(0, used);
        const Tensor from = Tensor(read).rows(0, used), to = Tensor(write).rows(0, used);
        causal_conv(queue, {.x = parts.x.view().rows(0, used),
                            .weight = parts.conv_weight,
                            .bias = parts.conv_bias,
                            .windows = parts.windows,
                            .span_begin = begins,
                            .read_slot = from,
                            .write_slot = to,
                            .y = convolved});
        mamba_scan(queue, {.x = convolved,
                           .dt = parts.dt.view().rows(0, used),
                           .rate = parts.rate,
                           .d = parts.d,
                           .dt_bias = parts.dt_bias,
                           .state = parts.state,
                           .span_begin = begins,
                           .read_slot = from,
                           .write_slot = to,
                           .y = parts.y.view().rows(0, used),
                           .shape = {.groups = c.groups, .dt_min = 0.01F, .dt_max = 4.0F}});
        CHECK(step.state.everything() == parts.state.everything());
        CHECK(step.windows.everything() == parts.windows.everything());
        CHECK(step.y.everything() == parts.y.everything());
      }
    }
  }

  TEST_CASE("names the broken rule") {
    const Table read{0, 1, 2, 3, 4}, write{0, 1, -1, 3, -1}, semaphores{0, 0, 0, 0, 0};
    const MambaStepInputs step(mamba_case(DType::f32));
    Queue queue = test_queue(Isa::plain);
    CHECK_THROWS_WITH_AS(mamba_step(queue, step.op(read, write, semaphores)),
                         "mamba_step: rows without a slot come last, got 3", Error);
    const Table chained{0, 1, 3, 2, 4}, used{1, 3, 0, 4, -1};
    CHECK_THROWS_WITH_AS(mamba_step(queue, step.op(chained, used, semaphores)),
                         "mamba_step: no row continues the one before it, got 1", Error);
    MambaStep op = step.op(read, write, semaphores);
    op.recurrence.shape.groups = 3;
    CHECK_THROWS_WITH_AS(mamba_step(queue, op), "mamba_step: groups divides heads, got 3", Error);
    op.recurrence.shape.groups = step.c.groups;
    op.convolution.weight = Tensor(step.conv_weight).rows(0, step.c.channels() - 1);
    CHECK_THROWS_WITH_AS(mamba_step(queue, op),
                         "mamba_step: causal_conv: x needs 87 in dimension 1, got 88", Error);
    op = step.op(read, write, semaphores);
    op.recurrence.x = op.convolution.x;
    CHECK_THROWS_WITH_AS(mamba_step(queue, op),
                         "mamba_step: x is what the convolution writes, got 0", Error);
  }
}

}  // namespace

}  // namespace ops_recurrent_step_test
