#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/kernels/ops/recurrent_step_case.h"

namespace cuda_recurrent_step_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

const DeltaStepCase cases[] = {
    {.key_heads = 2,
     .value_heads = 4,
     .rows = 16,
     .columns = 32,
     .read = {0, 2, 5, -1, -1},
     .write = {0, 2, 5, -1, -1}},
    {.value_heads = 3, .rows = 20, .columns = 20, .dtype = f32, .read = {1, -1}, .write = {3, 0}},
    {.value_heads = 2, .read = {4}, .write = {4}},
    {.taps = 3, .state = b16, .read = {4, 0}, .write = {4, 1}},
    {.key_heads = 3,
     .value_heads = 3,
     .rows = 40,
     .columns = 33,
     .taps = 2,
     .dtype = f32,
     .state = b16,
     .read = {-1, 1, 2, 4},
     .write = {0, 1, 3, 4}},
    {.rows = 200, .columns = 72, .read = {2}, .write = {1}},
    {.key_heads = 2, .value_heads = 4, .tiled = true, .read = {0}, .write = {0}},
    {.key_heads = 2,
     .value_heads = 2,
     .read = {0, 2, -1},
     .write = {0, 3, -1},
     .per_channel = true},
    {.value_heads = 2,
     .rows = 40,
     .columns = 20,
     .dtype = f32,
     .state = b16,
     .read = {-1, 4},
     .write = {1, 4},
     .per_channel = true},
    {.rows = 200, .columns = 36, .read = {2}, .write = {1}, .per_channel = true},
};

/// The tensors of a step on the device, and what it does there.
struct OnDevice {
  OnDevice(const DeltaStepCase& c, const DeltaStepInputs& in, bool with_bias)
      : x(in.x),
        b(in.b),
        a(in.a),
        conv_weight(in.conv_weight),
        conv_bias(in.conv_bias),
        windows(in.windows),
        rate(in.rate),
        dt_bias(in.dt_bias),
        state(in.state),
        y(in.y),
        convolved(in.convolved),
        read(c.read),
        write(c.write),
        semaphores(std::vector<std::int32_t>(c.read.size(), 0)),
        begins(begins_of(c)),
        key_heads(c.key_heads),
        tiled(c.tiled),
        per_channel(c.per_channel),
        has_bias(with_bias) {}

  /// One token per row that has a slot; the others' spans are empty.
  static std::vector<std::int32_t> begins_of(const DeltaStepCase& c) {
    std::vector<std::int32_t> all{0};
    for (const std::int32_t slot : c.write) all.push_back(all.back() + (slot < 0 ? 0 : 1));
    return all;
  }

  void step(cuda::Stream& stream) const {
    cuda::delta_step(
        stream,
        {.convolution = convolution(), .recurrence = recurrence(), .semaphores = semaphores});
  }
  void run_parts(cuda::Stream& stream) const {
    cuda::causal_conv(stream, convolution());
    cuda::delta_rule_scan(stream, recurrence());
  }
  CausalConv convolution() const {
    return {.x = x,
            .weight = conv_weight,
            .bias = has_bias ? Tensor(conv_bias) : Tensor(),
            .windows = windows,
            .span_begin = begins,
            .read_slot = read,
            .write_slot = write,
            .y = convolved};
  }
  DeltaRule recurrence() const {
    return {.x = convolved,
            .b = b,
            .a = a,
            .rate = rate,
            .dt_bias = dt_bias,
            .state = state,
            .span_begin = begins,
            .read_slot = read,
            .write_slot = write,
            .y = y,
            .shape = {.key_heads = key_heads,
                      .tiled = tiled,
                      .beta_scale = tiled ? 2.0F : 1.0F,
                      .per_channel = per_channel,
                      .decay_floor = per_channel ? -5.0F : 0.0F}};
  }

  DeviceTensor x, b, a, conv_weight, conv_bias, windows, rate, dt_bias, state, y, convolved;
  DeviceTable read, write, semaphores, begins;
  std::int32_t key_heads;
  bool tiled, per_channel, has_bias;
};

void check_case(const DeltaStepCase& c, bool with_bias, bool replayed) {
  CAPTURE(c.rows);
  CAPTURE(with_bias);
  const DeltaStepInputs in(c);
  cuda::Stream stream;
  const OnDevice whole(c, in, with_bias), parts(c, in, with_bias);
  run_or_replay(stream, replayed, [&] { whole.step(stream); });
  parts.run_parts(stream);
  stream.wait();
  CHECK(whole.y.fetch().everything() == parts.y.fetch().everything());
  CHECK(whole.state.fetch().everything() == parts.state.fetch().everything());
  CHECK(whole.windows.fetch().everything() == parts.windows.fetch().everything());
  CHECK(whole.state.fetch().everything() != in.state.everything());
  CHECK(whole.semaphores.fetch() == std::vector<std::int32_t>(c.read.size(), 0));
  CHECK(whole.x.fetch().everything() == in.x.everything());
}

TEST_SUITE("cuda/delta_step") {
  TEST_CASE("has the bits of causal_conv and the scan, which alone are held to the plain loop") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DeltaStepCase& c : cases) {
        check_case(c, true, false);
        check_case(c, false, true);
      }
    });
  }
}

const MambaStepCase mamba_cases[] = {
    {.heads = 4, .rows = 16, .columns = 32, .read = {0, 2, 5, -1, -1}, .write = {0, 2, 5, -1, -1}},
    {.heads = 6,
     .rows = 20,
     .columns = 40,
     .groups = 2,
     .dtype = f32,
     .read = {1, -1},
     .write = {3, 0}},
    {.heads = 2,
     .rows = 80,
     .columns = 128,
     .groups = 2,
     .taps = 3,
     .state = b16,
     .read = {4},
     .write = {4}},
    {.heads = 3,
     .rows = 33,
     .columns = 16,
     .groups = 3,
     .taps = 2,
     .dtype = f32,
     .read = {-1, 1, 2, 4},
     .write = {0, 1, 3, 4}},
};
void check_case(const MambaStepCase& c, bool bias, bool replayed) {
  CAPTURE(c.heads);
  CAPTURE(bias);
  const MambaStepInputs step(c);
  const TestTensor windows = step.windows, state = step.state, y = step.y;
  Queue plain = test_queue(Isa::plain);
  const Table read(c.read), write(c.write), semaphores(std::vector<std::int32_t>(c.read.size(), 0));
  MambaStep plain_op = step.op(read, write, semaphores);
  if (!bias) plain_op.convolution.bias = {};
  mamba_step(plain, plain_op);

  cuda::Stream stream;
  const DeviceTensor x(step.x), dt(step.dt), conv_weight(step.conv_weight),
      conv_bias(step.conv_bias), on_windows(windows), rate(step.rate), d(step.d),
      dt_bias(step.dt_bias), on_state(state), on_y(y);
  const DeviceTable on_read(c.read), on_write(c.write),
      on_tickets(std::vector<std::int32_t>(c.read.size(), 0));
  const Tensor used_bias = bias ? Tensor(conv_bias) : Tensor();
  const MambaStep op = {
      .convolution = step_convolution(x, conv_weight, used_bias, on_windows, {}),
      .recurrence = {.x = {},
                     .dt = dt,
                     .rate = rate,
                     .d = d,
                     .dt_bias = dt_bias,
                     .state = on_state,
                     .span_begin = {},
                     .read_slot = on_read,
                     .write_slot = on_write,
                     .y = on_y,
                     .shape = {.groups = c.groups, .dt_min = 0.01F, .dt_max = 4.0F}},
      .semaphores = on_tickets};
  run_or_replay(stream, replayed, [&] { cuda::mamba_step(stream, op); });

  const TestTensor answer = on_y.fetch(), new_state = on_state.fetch();
  const bool is_coarse = c.dtype == DType::bf16 || c.state == DType::bf16;
  const double bound = is_coarse ? 0.02 : 2e-5;
  CHECK(largest_error(answer, step.y, 0.5) <= bound);
  CHECK(largest_error(new_state, step.state, 0.5) <= bound);
  CHECK(on_windows.fetch().everything() == step.windows.everything());
  CHECK(answer.guards_intact());
  CHECK(on_tickets.fetch() == std::vector<std::int32_t>(c.read.size(), 0));
  check_slots(c.write, state, new_state);
}

TEST_SUITE("cuda/mamba_step") {
  TEST_CASE("is the plain parts' answer, and only the named slots change") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const MambaStepCase& c : mamba_cases) {
        check_case(c, true, false);
        check_case(c, false, true);
      }
    });
  }
}

}  // namespace

}  // namespace cuda_recurrent_step_test
