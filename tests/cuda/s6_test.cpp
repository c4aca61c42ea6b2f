#include "kernels/ops/s6.h"

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/kernels/ops/s6_case.h"

namespace hyb::kernels::testing::s6_test {

namespace {

/// Spans of one call of s6; every named slot is below s6_slots.
struct S6Case {
  std::int64_t channels = 33, columns = 16;
  DType dtype = b16, state = f32;
  ChainedSpans spans = {};
  Strides state_strides = {8, 8};

  /// With room for tokens that no span has.
  S6Inputs inputs(std::int64_t spare_tokens = 0) const {
    constexpr std::int64_t s6_slots = 10;
    return S6Inputs(dtype, {spans.begins.back() + spare_tokens, channels, columns}, s6_slots, state,
                    state_strides);
  }
  S6Case with(const ChainedSpans& others) const {
    S6Case other = *this;
    other.spans = others;
    return other;
  }
};

/// The tensors of calls on the device.
struct OnDevice {
  explicit OnDevice(const S6Inputs& in)
      : s(in.s),
        x(in.x),
        dt(in.dt),
        bc(in.bc),
        rate(in.rate),
        d(in.d),
        dt_bias(in.dt_bias),
        state(in.state),
        y(in.y) {}

  SelectiveScan op(const Tensor& begin, const Tensor& read, const Tensor& write, std::int64_t first,
                   std::int64_t tokens) const {
    const Tensor both = Tensor(bc).rows(first, tokens);
    return {.x = Tensor(x).rows(first, tokens),
            .dt = Tensor(dt).rows(first, tokens),
            .b = both.columns(0, s.columns),
            .c = both.columns(s.columns, s.columns),
            .rate = rate,
            .d = d,
            .dt_bias = dt_bias,
            .state = state,
            .span_begin = begin,
            .read_slot = read,
            .write_slot = write,
            .y = Tensor(y).rows(first, tokens)};
  }
  RecurrentAnswer answer() const { return {y.fetch(), state.fetch()}; }

  S6Shape s;
  DeviceTensor x, dt, bc, rate, d, dt_bias, state, y;
};

/// One call's answer, with two spans after the real ones that have neither tokens nor slots.
RecurrentAnswer run_call(const S6Case& c, const S6Inputs& in, bool replayed = false) {
  cuda::Stream stream;
  const OnDevice on(in);
  const DeviceTable begins(padded(c.spans.begins, c.spans.begins.back())),
      read(padded(c.spans.read, -1)), write(padded(c.spans.write, -1));
  const SelectiveScan op = on.op(begins, read, write, 0, in.s.tokens);
  run_or_replay(stream, replayed, [&] { cuda::selective_scan(stream, op); });
  CHECK(on.x.fetch().everything() == in.x.everything());
  CHECK(on.bc.fetch().everything() == in.bc.everything());
  return on.answer();
}

/// The answer in a call for every span.
RecurrentAnswer run_apart(const S6Case& c, const S6Inputs& in) {
  cuda::Stream stream;
  const OnDevice on(in);
  c.spans.each([&](const Table& begin, const Table& from, const Table& to, std::int32_t first) {
    const DeviceTable begins(begin.values()), read(from.values()), write(to.values());
    cuda::selective_scan(stream, on.op(begins, read, write, first, begin.values()[1]));
    stream.wait();
  });
  return on.answer();
}

/// Only the named slots and the spans' rows have changed.
void check_untouched(const S6Case& c, const S6Inputs& before, const RecurrentAnswer& after) {
  CHECK(after.y.guards_intact());
  check_slots(c.spans.write, before.state, after.state);
  const std::vector<std::byte> old = before.y.packed(), now = after.y.packed();
  const auto row_bytes = static_cast<std::ptrdiff_t>(old.size()) / before.s.tokens;
  CHECK(std::equal(old.begin() + c.spans.begins.back() * row_bytes, old.end(),
                   now.begin() + c.spans.begins.back() * row_bytes));
}

/// Whole and partial pieces of channels; columns of each kernel, whole and partial vectors of them;
/// a chain's pieces, drafts.
const S6Case cases[] = {
    {.spans = {{0, 35, 36, 52}, {0, -1, 3}, {0, 4, 2}}},
    {.channels = 64, .dtype = f32, .state = b16, .spans = {{0, 17}, {4}, {4}}},
    {.channels = 5, .columns = 7, .dtype = f32, .spans = {{0, 3, 20}, {2, 5}, {1, 5}}},
    {.channels = 19, .columns = 40, .state = b16, .spans = {{0, 1, 19}, {-1, 1}, {0, 1}}},
    {.channels = 6, .columns = 256, .spans = {{0, 9}, {-1}, {3}}},
    {.channels = 7, .columns = 16, .spans = {{0, 9}, {1}, {3}}, .state_strides = {3, 1}},
    {.channels = 3, .columns = 70, .dtype = f32, .spans = {{0, 6}, {3}, {2}}},
    {.spans = {{0, 5, 9, 12, 13}, {1, 4, 3, 5}, {4, -1, -1, 5}}},
};

void check_case(const S6Case& c, bool replayed) {
  CAPTURE(c.channels);
  CAPTURE(c.columns);
  const S6Inputs before = c.inputs(2);
  S6Inputs in = before;
  Queue plain = test_queue(Isa::plain);
  in.run(plain, Table(c.spans.begins), Table(c.spans.read), Table(c.spans.write));
  const RecurrentAnswer answer = run_call(c, before, replayed);
  const double y_bound = c.state == b16 ? 0.05 : c.dtype == b16 ? 0x1p-7 : 2e-5;
  CHECK(largest_error(answer.y, in.y, c.state == b16 ? 1.0 : 0.1) <= y_bound);
  CHECK(largest_error(answer.state, in.state, 0.5) <= (c.state == b16 ? 0.03 : 2e-5));
  check_untouched(c, before, answer);
}

TEST_SUITE("cuda/s6") {
  TEST_CASE("is the plain loop's answer; only the named slots change") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const S6Case& c : cases) {
        check_case(c, false);
        check_case(c, true);
      }
    });
  }

  TEST_CASE("is the recurrence in doubles, within its bound") {
    const S6Case c = {.dtype = f32, .spans = {{0, 200}, {1}, {2}}};
    const S6Inputs in = c.inputs();
    const std::int64_t size = in.s.channels * in.s.columns;
    std::vector<double> state;
    for (std::int64_t i = 0; i < size; ++i) state.push_back(in.state.get(size + i));
    const std::vector<double> expected = recur(in, state);
    const RecurrentAnswer answer = run_call(c, in);
    double largest = 0, worst = 0;
    for (std::int64_t i = 0; i < answer.y.size(); ++i) {
      const double exact = expected[static_cast<std::size_t>(i)];
      largest = std::max(largest, std::fabs(exact));
      worst = std::max(worst, std::fabs(answer.y.get(i) - exact));
    }
    CHECK(worst <= 4e-6 * largest);
    for (std::int64_t i = 0; i < size; ++i) {
      const double exact = state[static_cast<std::size_t>(i)];
      CHECK(std::fabs(answer.state.get(2 * size + i) - exact) <=
            1e-5 * std::max(1.0, std::fabs(exact)));
    }
  }

  TEST_CASE("neither cuts nor chains change a bit") {
    std::mt19937 engine(3);
    for (const S6Case& shape : cases) {
      CAPTURE(shape.columns);
      const S6Case whole = shape.with({{0, 40}, {1}, {1}});
      const S6Inputs in = whole.inputs();
      const RecurrentAnswer expected = run_call(whole, in);
      for (int i = 0; i < 3; ++i) {
        const std::vector<std::int32_t> begins = random_cuts(40, engine);
        const std::vector<std::int32_t> slots(begins.size() - 1, 1);
        const RecurrentAnswer cut = run_apart(shape.with({begins, slots, slots}), in);
        CHECK(same_bytes(cut.y, expected.y));
        CHECK(same_bytes(cut.state, expected.state));
      }
    }
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const S6Case& shape : cases) {
        for (const bool from_zeros : {false, true}) {
          const S6Case c = shape.with(chained({0, 1, 2, 16, 17, 40}, from_zeros, !from_zeros));
          const S6Inputs in = c.inputs(2);
          const RecurrentAnswer chain = run_call(c, in, from_zeros), apart = run_apart(c, in);
          CHECK(same_rows(chain.y, apart.y, c.spans.begins.back()));
          CHECK(chain.state.everything() == apart.state.everything());
          check_untouched(c, in, chain);
        }
      }
    });
  }

  TEST_CASE("steps of none and of all, and NaN stays in its channel and sequence") {
    const S6Case c = {.dtype = f32, .spans = {{0, 5, 9}, {1, 3}, {2, 3}}};
    S6Inputs in = c.inputs();
    for (std::int64_t i = 0; i < in.dt.size(); ++i) in.dt.set(i, i % 2 == 0 ? -1e4F : 900.0F);
    S6Inputs plain = in;
    Queue queue = test_queue(Isa::plain);
    plain.run(queue, Table(c.spans.begins), Table(c.spans.read), Table(c.spans.write));
    const RecurrentAnswer clean = run_call(c, in);
    CHECK(largest_error(clean.y, plain.y, 1.0) <= 2e-5);
    in.x.set(2, NAN);
    const RecurrentAnswer answer = run_call(c, in);
    for (std::int64_t i = 0; i < answer.y.size(); ++i) {
      const bool is_nan = i % c.channels == 2 && i < 5 * c.channels;
      CHECK((is_nan ? std::isnan(answer.y.get(i)) : answer.y.get(i) == clean.y.get(i)));
    }
  }
}

}  // namespace

}  // namespace hyb::kernels::testing::s6_test
