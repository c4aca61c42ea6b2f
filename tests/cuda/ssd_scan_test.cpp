#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/ssd_cuda.h"
#include "tests/cuda/ssd_case.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType f32 = DType::f32, b16 = DType::bf16;

const SsdCase cases[] = {
    {2, 32, 64, 1, b16, f32, {0, 35, 36, 52}, {0, -1, 3}, {0, 4, 2}, {8, 8}},
    {4, 20, 40, 2, f32, f32, {0, 3, 20}, {2, 5}, {1, 5}, {}},
    {2, 80, 128, 2, b16, b16, {0, 17}, {4}, {4}, {}},
    {1, 7, 33, 1, b16, f32, {0, 1, 19}, {-1, 1}, {0, 1}, {3, 1}},
    {1, 16, 256, 1, f32, b16, {0, 33}, {-1}, {3}, {}},
    {3, 5, 12, 3, f32, f32, {0, 6}, {3}, {2}, {1, 0}},
};

void check_case(const SsdCase& c, bool replayed) {
  CAPTURE(c.rows);
  CAPTURE(c.columns);
  const SsdInputs before(c, 2);
  SsdInputs in = before;
  run_plain(c, in);
  const RecurrentAnswer answer = run_route(cuda::ssd_scan, c, before, replayed);
  const double y_bound = c.state == b16 ? 0.05 : c.dtype == b16 ? 0x1p-8 : 2e-5;
  CHECK(largest_error(answer.y, in.y, c.state == b16 ? 1.0 : 0.1) <= y_bound);
  CHECK(largest_error(answer.state, in.state, 0.5) <= (c.state == b16 ? 0.03 : 2e-5));
  check_untouched(c, before, answer);
}

/// One sequence through slot 1, a call for every piece.
RecurrentAnswer cut_answer(SsdCase c, const std::vector<std::int32_t>& begins) {
  const SsdInputs in(c);
  SsdInputs piece = in;
  RecurrentAnswer all{in.y, in.state};
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    const std::int32_t first = begins[i], tokens = begins[i + 1] - first;
    c.begins = {0, tokens};
    const std::int64_t width = in.x.size() / in.tokens, heads = c.heads;
    piece.x = TestTensor(c.dtype, {tokens, width}, c.strides);
    piece.dt = TestTensor(c.dtype, {tokens, heads});
    piece.y = TestTensor(c.dtype, {tokens, in.inner});
    for (std::int64_t j = 0; j < piece.x.size(); ++j) piece.x.set(j, in.x.get(first * width + j));
    for (std::int64_t j = 0; j < piece.dt.size(); ++j)
      piece.dt.set(j, in.dt.get(first * heads + j));
    const RecurrentAnswer answer = run_route(cuda::ssd_scan, c, piece);
    for (std::int64_t j = 0; j < answer.y.size(); ++j) {
      all.y.set(first * in.inner + j, answer.y.get(j));
    }
    piece.state = answer.state;
  }
  all.state = piece.state;
  return all;
}

TEST_SUITE("cuda/ssd_scan") {
  TEST_CASE("is the plain loop's answer; only the named slots change") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const SsdCase& c : cases) {
        check_case(c, false);
        check_case(c, true);
      }
    });
  }

  TEST_CASE("cuts change no bit") {
    std::mt19937 engine(3);
    for (const DType state : {f32, b16}) {
      const SsdCase c = {2, 20, 72, 2, b16, state, {0, 40}, {1}, {1}, {}};
      const RecurrentAnswer whole = cut_answer(c, {0, 40});
      for (int i = 0; i < 4; ++i) {
        const RecurrentAnswer cut = cut_answer(c, random_cuts(40, engine));
        CHECK(same_bytes(cut.y, whole.y));
        CHECK(same_bytes(cut.state, whole.state));
      }
    }
  }
}

TEST_SUITE("cuda/ssd_scan") {
  TEST_CASE("a chain of spans leaves the bytes of a call for each of them") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const SsdCase& c : cases) {
        check_chain(cuda::ssd_scan, c.with(chained({0, 1, 2, 16, 17, 40}, false, true)));
      }
      check_chain(cuda::ssd_scan, cases[0].with(chained({0, 15, 31, 32, 33}, true, false)), true);
      check_chain(cuda::ssd_scan, cases[2].with(chained({0, 16, 32}, false, false)), true);
    });
  }
}

/// A sequence of `tokens` in slot 2, by causal_conv and ssd at once or by mamba_step one by one.
struct Mixer {
  static constexpr std::int64_t tokens = 21, heads = 2, rows = 24, groups = 1, taps = 4;

  Mixer(std::int64_t columns, DType dtype, DType state_type)
      : channels(heads * rows + 2 * groups * columns),
        x(random_tensor(dtype, {tokens, channels}, 1)),
        dt(random_tensor(dtype, {tokens, heads}, 2)),
        conv_weight(random_tensor(f32, {channels, taps}, 3, 0.5F)),
        conv_bias(random_tensor(f32, {channels}, 4)),
        windows(random_tensor(dtype, {3, channels, taps - 1}, 5)),
        a_log(random_tensor(f32, {heads}, 6)),
        d(random_tensor(f32, {heads}, 7)),
        dt_bias(random_tensor(f32, {heads}, 8)),
        state(random_tensor(state_type, {3, heads, rows, columns}, 9)),
        convolved(TestTensor(dtype, {tokens, channels})),
        y(TestTensor(dtype, {tokens, heads * rows})) {}

  void run_whole(cuda::Stream& stream) {
    const DeviceTable begins({0, tokens}), slot({2});
    cuda::causal_conv(stream, {.x = x,
                               .weight = conv_weight,
                               .bias = conv_bias,
                               .windows = windows,
                               .span_begin = begins,
                               .read_slot = slot,
                               .write_slot = slot,
                               .y = convolved});
    cuda::ssd_scan(stream, {.x = convolved,
                            .dt = dt,
                            .a_log = a_log,
                            .d = d,
                            .dt_bias = dt_bias,
                            .state = state,
                            .span_begin = begins,
                            .read_slot = slot,
                            .write_slot = slot,
                            .y = y,
                            .groups = groups});
    stream.wait();
  }

  void run_steps(cuda::Stream& stream) {
    const DeviceTable slot({2}), tickets({0});
    for (std::int64_t t = 0; t < tokens; ++t) {
      cuda::mamba_step(stream, {.x = Tensor(x).rows(t, 1),
                                .dt = Tensor(dt).rows(t, 1),
                                .conv_weight = conv_weight,
                                .conv_bias = conv_bias,
                                .windows = windows,
                                .a_log = a_log,
                                .d = d,
                                .dt_bias = dt_bias,
                                .state = state,
                                .read_slot = slot,
                                .write_slot = slot,
                                .y = Tensor(y).rows(t, 1),
                                .convolved = convolved,
                                .tickets = tickets,
                                .groups = groups});
    }
    stream.wait();
  }

  std::int64_t channels;
  DeviceTensor x, dt, conv_weight, conv_bias, windows, a_log, d, dt_bias, state, convolved, y;
};

TEST_SUITE("cuda/ssd_scan") {
  TEST_CASE("mamba_step, one token at a time, has the bits of causal_conv and the scan") {
    for (const std::int64_t columns : {16, 64, 100, 136}) {
      for (const DType dtype : {f32, b16}) {
        for (const DType state : {f32, b16}) {
          cuda::Stream stream;
          Mixer whole(columns, dtype, state), steps(columns, dtype, state);
          whole.run_whole(stream);
          steps.run_steps(stream);
          CHECK(same_bytes(whole.y.fetch(), steps.y.fetch()));
          CHECK(same_bytes(whole.state.fetch(), steps.state.fetch()));
          CHECK(same_bytes(whole.windows.fetch(), steps.windows.fetch()));
        }
      }
    }
  }
}

}  // namespace
