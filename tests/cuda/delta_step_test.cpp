#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/delta_rule_cuda.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/kernels/ops/delta_step_case.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType f32 = DType::f32, b16 = DType::bf16;

const DeltaStepCase cases[] = {
    {2, 4, 16, 32, 4, b16, f32, {0, 2, 5, -1, -1}, {0, 2, 5, -1, -1}},
    {1, 3, 20, 20, 4, f32, f32, {1, -1}, {3, 0}},
    {1, 2, 128, 128, 4, b16, f32, {4}, {4}},
    {1, 1, 128, 128, 3, b16, b16, {4, 0}, {4, 1}},
    {3, 3, 40, 33, 2, f32, b16, {-1, 1, 2, 4}, {0, 1, 3, 4}},
    {1, 1, 200, 72, 4, b16, f32, {2}, {1}},
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
        a_log(in.a_log),
        dt_bias(in.dt_bias),
        state(in.state),
        y(in.y),
        convolved(in.convolved),
        read(c.read),
        write(c.write),
        tickets(std::vector<std::int32_t>(c.read.size(), 0)),
        begins(begins_of(c)),
        key_heads(c.key_heads),
        has_bias(with_bias) {}

  /// One token per row that has a slot; the others' spans are empty.
  static std::vector<std::int32_t> begins_of(const DeltaStepCase& c) {
    std::vector<std::int32_t> all{0};
    for (const std::int32_t slot : c.write) all.push_back(all.back() + (slot < 0 ? 0 : 1));
    return all;
  }

  void step(cuda::Stream& stream) const {
    cuda::delta_step(stream, {.x = x,
                              .b = b,
                              .a = a,
                              .conv_weight = conv_weight,
                              .conv_bias = has_bias ? Tensor(conv_bias) : Tensor(),
                              .windows = windows,
                              .a_log = a_log,
                              .dt_bias = dt_bias,
                              .state = state,
                              .read_slot = read,
                              .write_slot = write,
                              .y = y,
                              .convolved = {},
                              .tickets = tickets,
                              .key_heads = key_heads});
  }
  void run_parts(cuda::Stream& stream) const {
    cuda::causal_conv(stream, {.x = x,
                               .weight = conv_weight,
                               .bias = has_bias ? Tensor(conv_bias) : Tensor(),
                               .windows = windows,
                               .span_begin = begins,
                               .read_slot = read,
                               .write_slot = write,
                               .y = convolved});
    cuda::delta_rule_scan(stream, {.x = convolved,
                                   .b = b,
                                   .a = a,
                                   .a_log = a_log,
                                   .dt_bias = dt_bias,
                                   .state = state,
                                   .span_begin = begins,
                                   .read_slot = read,
                                   .write_slot = write,
                                   .y = y,
                                   .key_heads = key_heads});
  }

  DeviceTensor x, b, a, conv_weight, conv_bias, windows, a_log, dt_bias, state, y, convolved;
  DeviceTable read, write, tickets, begins;
  std::int64_t key_heads;
  bool has_bias;
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
  CHECK(whole.tickets.fetch() == std::vector<std::int32_t>(c.read.size(), 0));
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

}  // namespace
