#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/recurrent_support.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Case {
  std::int64_t heads, rows, columns, groups, taps;
  DType dtype, state;
  std::vector<std::int32_t> read, write;
};
const Case cases[] = {
    {4, 16, 32, 1, 4, DType::bf16, DType::f32, {0, 2, 5, -1, -1}, {0, 2, 5, -1, -1}},
    {6, 20, 40, 2, 4, DType::f32, DType::f32, {1, -1}, {3, 0}},
    {2, 80, 128, 2, 3, DType::bf16, DType::bf16, {4}, {4}},
    {3, 33, 16, 3, 2, DType::f32, DType::f32, {-1, 1, 2, 4}, {0, 1, 3, 4}},
};
constexpr std::int64_t slots = 6;

/// All tensors of one step, on the host.
struct Step {
  explicit Step(const Case& c)
      : inner(c.heads * c.rows),
        channels(inner + 2 * c.groups * c.columns),
        tokens(static_cast<std::int64_t>(c.read.size())),
        x(random_tensor(c.dtype, {tokens, channels}, 1, 1.0F, {7, 1})),
        dt(random_tensor(c.dtype, {tokens, c.heads}, 3, 1.0F, {2, 1})),
        conv_weight(random_tensor(DType::f32, {channels, c.taps}, 4, 0.5F)),
        conv_bias(random_tensor(DType::f32, {channels}, 5, 0.5F)),
        windows(random_tensor(c.dtype, {slots, channels, c.taps - 1}, 6, 1.0F, {3, 1})),
        a_log(random_tensor(DType::f32, {c.heads}, 7)),
        d(random_tensor(DType::f32, {c.heads}, 8)),
        dt_bias(random_tensor(DType::f32, {c.heads}, 9)),
        state(random_tensor(c.state, {slots, c.heads, c.rows, c.columns}, 10, 1.0F, {5, 1})),
        y(c.dtype, {tokens, inner}, {3, 1}),
        convolved(c.dtype, {tokens, channels}) {}

  std::int64_t inner, channels, tokens;
  TestTensor x, dt, conv_weight, conv_bias, windows, a_log, d, dt_bias, state, y, convolved;
};

void check_case(const Case& c, bool bias, bool replayed) {
  CAPTURE(c.heads);
  CAPTURE(bias);
  Step step(c);
  const TestTensor windows = step.windows, state = step.state, y = step.y;
  Queue plain = test_queue(Isa::plain);
  const Table read(c.read), write(c.write), tickets(std::vector<std::int32_t>(c.read.size(), 0));
  mamba_step(plain, {.x = step.x,
                     .dt = step.dt,
                     .conv_weight = step.conv_weight,
                     .conv_bias = bias ? Tensor(step.conv_bias) : Tensor(),
                     .windows = step.windows,
                     .a_log = step.a_log,
                     .d = step.d,
                     .dt_bias = step.dt_bias,
                     .state = step.state,
                     .read_slot = read,
                     .write_slot = write,
                     .y = step.y,
                     .convolved = step.convolved,
                     .tickets = tickets,
                     .groups = c.groups,
                     .dt_min = 0.01F,
                     .dt_max = 4.0F});

  cuda::Stream stream;
  const DeviceTensor x(step.x), dt(step.dt), conv_weight(step.conv_weight),
      conv_bias(step.conv_bias), on_windows(windows), a_log(step.a_log), d(step.d),
      dt_bias(step.dt_bias), on_state(state), on_y(y);
  const DeviceTable on_read(c.read), on_write(c.write),
      on_tickets(std::vector<std::int32_t>(c.read.size(), 0));
  const MambaStep op = {.x = x,
                        .dt = dt,
                        .conv_weight = conv_weight,
                        .conv_bias = bias ? Tensor(conv_bias) : Tensor(),
                        .windows = on_windows,
                        .a_log = a_log,
                        .d = d,
                        .dt_bias = dt_bias,
                        .state = on_state,
                        .read_slot = on_read,
                        .write_slot = on_write,
                        .y = on_y,
                        .convolved = {},
                        .tickets = on_tickets,
                        .groups = c.groups,
                        .dt_min = 0.01F,
                        .dt_max = 4.0F};
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
      for (const Case& c : cases) {
        check_case(c, true, false);
        check_case(c, false, true);
      }
    });
  }
}

}  // namespace
