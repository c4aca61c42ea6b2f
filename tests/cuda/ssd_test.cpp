#include <functional>

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/recurrence.h"
#include "kernels/ops/ssd.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/kernels/ops/recurrent_step_case.h"

namespace hyb::kernels::testing::ssd_test {

namespace {

/// Spans of one call of ssd; every named slot is below ssd_slots.
struct SsdCase {
  std::int64_t heads = 2, rows = 32, columns = 64;
  std::int32_t groups = 1;
  DType dtype = b16, state = f32;
  ChainedSpans spans = {};
  Strides strides = {};
  float dt_max = 4.0F;

  SsdCase with(const ChainedSpans& others) const {
    SsdCase other = *this;
    other.spans = others;
    return other;
  }
};
constexpr std::int64_t ssd_slots = 10;

/// All tensors of a call, on the host, with room for tokens that no span has.
struct SsdInputs {
  explicit SsdInputs(const SsdCase& c, std::int64_t spare_tokens = 0)
      : tokens(c.spans.begins.back()),
        inner(c.heads * c.rows),
        x(random_tensor(c.dtype, {tokens + spare_tokens, inner + 2 * c.groups * c.columns}, 1, 1.0F,
                        c.strides)),
        dt(random_tensor(c.dtype, {tokens + spare_tokens, c.heads}, 2, 1.0F, {2, 1})),
        rate(random_rates(c.heads, 3)),
        d(random_tensor(f32, {c.heads}, 4)),
        dt_bias(random_tensor(f32, {c.heads}, 5)),
        state(random_tensor(c.state, {ssd_slots, c.heads, c.rows, c.columns}, 6, 1.0F, c.strides)),
        y(c.dtype, {tokens + spare_tokens, inner}, c.strides) {}

  std::int64_t tokens, inner;
  TestTensor x, dt, rate, d, dt_bias, state, y;
};

/// The plain loop; y and state of `in` become its answer.
void run_plain(const SsdCase& c, SsdInputs& in) {
  Queue plain = test_queue(Isa::plain);
  const Table begins(c.spans.begins), read(c.spans.read), write(c.spans.write);
  mamba_scan(plain, {.x = in.x.view().rows(0, in.tokens),
                     .dt = in.dt.view().rows(0, in.tokens),
                     .rate = in.rate,
                     .d = in.d,
                     .dt_bias = in.dt_bias,
                     .state = in.state,
                     .span_begin = begins,
                     .read_slot = read,
                     .write_slot = write,
                     .y = in.y.view().rows(0, in.tokens),
                     .token_by_token = true,
                     .shape = {.groups = c.groups, .dt_max = c.dt_max}});
}

using SsdRoute = std::function<void(cuda::Stream&, const MambaScan&)>;

/// The inputs on the card.
struct SsdOnCard {
  SsdOnCard(const SsdCase& ssd_case, const SsdInputs& in)
      : c(ssd_case),
        x(in.x),
        dt(in.dt),
        rate(in.rate),
        d(in.d),
        dt_bias(in.dt_bias),
        state(in.state),
        y(in.y) {}

  MambaScan op(const Tensor& begin, const Tensor& read, const Tensor& write, std::int64_t first,
               std::int64_t tokens) const {
    return {.x = Tensor(x).rows(first, tokens),
            .dt = Tensor(dt).rows(first, tokens),
            .rate = rate,
            .d = d,
            .dt_bias = dt_bias,
            .state = state,
            .span_begin = begin,
            .read_slot = read,
            .write_slot = write,
            .y = Tensor(y).rows(first, tokens),
            .shape = {.groups = c.groups, .dt_max = c.dt_max}};
  }
  RecurrentAnswer answer() const { return {y.fetch(), state.fetch()}; }

  const SsdCase& c;
  DeviceTensor x, dt, rate, d, dt_bias, state, y;
};

/// A route's answer, with two spans after the real ones that have neither tokens nor slots.
RecurrentAnswer run_route(const SsdRoute& route, const SsdCase& c, const SsdInputs& in,
                          bool replayed = false) {
  cuda::Stream stream;
  const SsdOnCard card(c, in);
  const DeviceTable begins(padded(c.spans.begins, c.spans.begins.back())),
      read(padded(c.spans.read, -1)), write(padded(c.spans.write, -1));
  const MambaScan op = card.op(begins, read, write, 0, in.x.view().dim(0));
  run_or_replay(stream, replayed, [&] { route(stream, op); });
  CHECK(card.x.fetch().everything() == in.x.everything());
  return card.answer();
}

/// A route's answer in a call for every span.
RecurrentAnswer run_apart(const SsdRoute& route, const SsdCase& c, const SsdInputs& in) {
  cuda::Stream stream;
  const SsdOnCard card(c, in);
  c.spans.each([&](const Table& begin, const Table& from, const Table& to, std::int32_t first) {
    const DeviceTable begins(begin.values()), read(from.values()), write(to.values());
    route(stream, card.op(begins, read, write, first, begin.values()[1]));
    stream.wait();
  });
  return card.answer();
}

/// A chain's one call leaves the bytes of a call for each of its spans.
void check_chain(const SsdRoute& route, const SsdCase& c, bool replayed = false) {
  CAPTURE(c.rows);
  CAPTURE(c.columns);
  const SsdInputs in(c, 2);
  const RecurrentAnswer chain = run_route(route, c, in, replayed), apart = run_apart(route, c, in);
  CHECK(same_rows(chain.y, apart.y, c.spans.begins.back()));
  CHECK(chain.y.guards_intact());
  CHECK(chain.state.everything() == apart.state.everything());
}

/// Only the named slots have changed.
void check_untouched(const SsdCase& c, const SsdInputs& before, const RecurrentAnswer& after) {
  CHECK(after.y.guards_intact());
  check_slots(c.spans.write, before.state, after.state);
}

const SsdCase cases[] = {
    {.spans = {{0, 35, 36, 52}, {0, -1, 3}, {0, 4, 2}}, .strides = {8, 8}},
    {.heads = 4,
     .rows = 20,
     .columns = 40,
     .groups = 2,
     .dtype = f32,
     .spans = {{0, 3, 20}, {2, 5}, {1, 5}}},
    {.rows = 80, .columns = 128, .groups = 2, .state = b16, .spans = {{0, 17}, {4}, {4}}},
    {.heads = 1,
     .rows = 7,
     .columns = 33,
     .spans = {{0, 1, 19}, {-1, 1}, {0, 1}},
     .strides = {3, 1}},
    {.heads = 1,
     .rows = 16,
     .columns = 256,
     .dtype = f32,
     .state = b16,
     .spans = {{0, 33}, {-1}, {3}}},
    {.heads = 3,
     .rows = 5,
     .columns = 12,
     .groups = 3,
     .dtype = f32,
     .spans = {{0, 6}, {3}, {2}},
     .strides = {1, 0}},
    {.spans = {{0, 5, 9, 12, 13}, {1, 4, 3, 5}, {4, -1, -1, 5}}},  // drafts
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
    c.spans.begins = {0, tokens};
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
      const SsdCase c = {
          .rows = 20, .columns = 72, .groups = 2, .state = state, .spans = {{0, 40}, {1}, {1}}};
      const RecurrentAnswer whole = cut_answer(c, {0, 40});
      for (int i = 0; i < 4; ++i) {
        const RecurrentAnswer cut = cut_answer(c, random_cuts(40, engine));
        CHECK(same_bytes(cut.y, whole.y));
        CHECK(same_bytes(cut.state, whole.state));
      }
    }
  }

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
  static constexpr std::int64_t tokens = 21, heads = 2, rows = 24, taps = 4;
  static constexpr std::int32_t groups = 1;

  Mixer(std::int64_t columns, DType dtype, DType state_type)
      : channels(heads * rows + 2 * groups * columns),
        x(random_tensor(dtype, {tokens, channels}, 1)),
        dt(random_tensor(dtype, {tokens, heads}, 2)),
        conv_weight(random_tensor(f32, {channels, taps}, 3, 0.5F)),
        conv_bias(random_tensor(f32, {channels}, 4)),
        windows(random_tensor(dtype, {3, channels, taps - 1}, 5)),
        rate(random_rates(heads, 6)),
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
                            .rate = rate,
                            .d = d,
                            .dt_bias = dt_bias,
                            .state = state,
                            .span_begin = begins,
                            .read_slot = slot,
                            .write_slot = slot,
                            .y = y,
                            .shape = {.groups = groups}});
    stream.wait();
  }

  void run_steps(cuda::Stream& stream) {
    const DeviceTable slot({2}), semaphores({0});
    for (std::int64_t t = 0; t < tokens; ++t) {
      cuda::mamba_step(stream, {.convolution = step_convolution(Tensor(x).rows(t, 1), conv_weight,
                                                                conv_bias, windows, convolved),
                                .recurrence = {.x = convolved,
                                               .dt = Tensor(dt).rows(t, 1),
                                               .rate = rate,
                                               .d = d,
                                               .dt_bias = dt_bias,
                                               .state = state,
                                               .span_begin = {},
                                               .read_slot = slot,
                                               .write_slot = slot,
                                               .y = Tensor(y).rows(t, 1),
                                               .shape = {.groups = groups}},
                                .semaphores = semaphores});
    }
    stream.wait();
  }

  std::int64_t channels;
  DeviceTensor x, dt, conv_weight, conv_bias, windows, rate, d, dt_bias, state, convolved, y;
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

/// As much as the case can use.
Workspace workspace_of(const SsdCase& c) {
  return Workspace(ssd_workspace_bytes(Device::cuda, c.heads, c.rows, c.columns));
}

/// What an input does to the step sizes.
enum class Steps { usual, none, large, mixed };

void set_steps(Steps steps, SsdInputs& in) {
  std::mt19937 engine(17);
  for (std::int64_t i = 0; i < in.dt.size(); ++i) {
    if (steps == Steps::none) in.dt.set(i, -1e4F);
    if (steps == Steps::large) in.dt.set(i, 500.0F);
    if (steps == Steps::mixed && engine() % 4 == 0)
      in.dt.set(i, engine() % 2 == 0 ? -60.0F : 900.0F);
  }
}

/// What the plain loop answers where every term has its magnitude: how far errors reach.
SsdInputs magnitudes(const SsdCase& c, SsdInputs in) {
  for (TestTensor* tensor : {&in.x, &in.d, &in.state}) {
    for (std::int64_t i = 0; i < tensor->size(); ++i) tensor->set(i, std::fabs(tensor->get(i)));
  }
  run_plain(c, in);
  return in;
}

void check_within(const TestTensor& answer, const TestTensor& expected, const TestTensor& reach,
                  double bound, double rounding) {
  double worst = 0;
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(answer.get(i)) - expected.get(i));
    const double allowed = bound * reach.get(i) + rounding * std::fabs(expected.get(i)) + 1e-30;
    worst = error <= allowed ? std::max(worst, error / allowed) : INFINITY;
    if (!(error <= allowed)) break;
  }
  CHECK(worst <= 1.0);
}

/// What roundings of a bf16 state where a span ends and another continues it may add, in terms of
/// reach.
double cut_bound(const SsdCase& c) {
  double bound = 0;
  for (std::size_t r = 1; c.state == b16 && r < c.spans.read.size(); ++r) {
    if (c.spans.read[r] == c.spans.write[r - 1]) bound += 0x1p-8;
  }
  return bound;
}

void check_case(const SsdCase& c, Steps steps, bool in_segments, bool replayed) {
  CAPTURE(c.rows);
  CAPTURE(c.columns);
  CAPTURE(static_cast<int>(steps));
  CAPTURE(in_segments);
  SsdInputs before(c, 5);
  set_steps(steps, before);
  SsdInputs in = before;
  SsdCase exact = c;  // the chunked form keeps f32 until a span ends
  exact.state = f32;
  in.state = converted(before.state, f32, {ssd_slots, c.heads, c.rows, c.columns});
  const SsdInputs reach = magnitudes(exact, in);
  run_plain(exact, in);
  const Workspace workspace = workspace_of(c);
  const auto route = [&](cuda::Stream& stream, MambaScan op) {
    if (in_segments) op.workspace = workspace.view();
    REQUIRE(cuda::ssd_chunked_takes(op));
    cuda::ssd_chunked(stream, op);
  };
  const RecurrentAnswer answer = run_route(route, c, before, replayed);
  check_within(answer.y, in.y, reach.y, 0x1p-7 + cut_bound(c), 0x1p-8);
  check_within(answer.state, in.state, reach.state, 0x1p-8 + cut_bound(c),
               c.state == b16 ? 0x1p-8 : 1e-6);
  check_untouched(c, before, answer);
}

const SsdCase chunked_cases[] = {
    {.spans = {{0, 130, 131, 151}, {0, -1, 3}, {0, 4, 2}}, .strides = {8, 8}},
    {.rows = 64, .columns = 128, .state = b16, .spans = {{0, 65, 129}, {4, -1}, {4, 2}}},
    {.rows = 80, .groups = 2, .spans = {{0, 70}, {-1}, {5}}},
    {.heads = 1, .rows = 128, .spans = {{0, 33}, {1}, {2}}},
    {.heads = 1, .columns = 256, .spans = {{0, 66}, {1}, {1}}},
    {.heads = 1, .rows = 80, .columns = 128, .state = b16, .spans = {{0, 64}, {0}, {0}}},
    {.heads = 1, .rows = 80, .columns = 256, .spans = {{0, 17}, {0}, {0}}},
};

TEST_SUITE("cuda/ssd_chunked") {
  TEST_CASE("is within its bounds of the plain loop; only the named slots change") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const SsdCase& c : chunked_cases) check_case(c, Steps::usual, false, false);
    });
  }

  TEST_CASE("steps that keep all of the state, or nothing, or either in turn") {
    for (const Steps steps : {Steps::none, Steps::large, Steps::mixed}) {
      SsdCase c = chunked_cases[0];
      c.dt_max = 1000.0F;
      check_case(c, steps, false, true);
    }
  }

  TEST_CASE("segments: within the same bounds, from slots and from zeros") {
    const SsdCase c = {.spans = {{0, 641, 900, 904}, {2, -1, 4}, {2, 1, 5}}};
    const SsdSegments plan = ssd_segments(909, 5, c.heads, c.rows, c.columns);
    CHECK(plan.tokens == 256);
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      check_case(c, Steps::usual, true, false);
    });
    SsdCase other = c;
    other.state = b16;
    other.dt_max = 1000.0F;
    check_case(other, Steps::mixed, true, true);
    check_case(other, Steps::usual, true, true);
  }

  TEST_CASE("a chain of spans leaves the bytes of a call for each of them") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const SsdCase& c : chunked_cases) {
        check_chain(cuda::ssd_chunked, c.with(chained({0, 63, 64, 129}, false, true)));
      }
      check_chain(cuda::ssd_chunked,
                  chunked_cases[0].with(chained({0, 64, 65, 66, 200}, true, false)), true);
    });
  }

  TEST_CASE("segments of chains: within the same bounds, at every cut") {
    const SsdCase shape;
    const SsdCase chains[] = {shape.with(chained({0, 600, 601}, true, false)),
                              shape.with(chained({0, 5, 300, 812, 813, 900}, false, true)),
                              shape.with({{0, 256, 512, 700}, {1, 2, -1}, {2, 3, 4}})};
    for (const SsdCase& c : chains) {
      const auto spans = static_cast<std::int64_t>(c.spans.read.size()) + 2;
      CHECK(ssd_segments(c.spans.begins.back() + 5, spans, c.heads, c.rows, c.columns).tokens ==
            256);
    }
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const SsdCase& c : chains) check_case(c, Steps::usual, true, false);
    });
    SsdCase other = chains[1];
    other.state = b16;
    other.dt_max = 1000.0F;
    check_case(other, Steps::mixed, true, true);
    check_case(other, Steps::usual, true, true);
  }

  TEST_CASE("the same call gives the same bits") {
    const SsdCase c = {.spans = {{0, 600}, {2}, {2}}};
    const SsdInputs in(c);
    const Workspace workspace = workspace_of(c);
    const auto route = [&](cuda::Stream& stream, MambaScan op) {
      op.workspace = workspace.view();
      cuda::ssd_chunked(stream, op);
    };
    const RecurrentAnswer first = run_route(route, c, in), second = run_route(route, c, in);
    CHECK(same_bytes(first.y, second.y));
    CHECK(same_bytes(first.state, second.state));
  }

  TEST_CASE("ssd: token by token where stream or caller ask for it, or spans are short") {
    const SsdCase one = {.spans = {{0, 70}, {2}, {2}}};
    SsdCase many = {.spans = {{0, 2, 4, 5, 6}, {0, 1, 2, 3}, {0, 1, 2, 3}}};
    const auto invariant = [](cuda::Stream& stream, const MambaScan& op) {
      stream.set_batch_invariant(true);
      cuda::mamba_scan(stream, op);
    };
    const auto answers = [](const SsdRoute& route, const SsdCase& c) {
      return run_route(route, c, SsdInputs(c)).y.packed();
    };
    CHECK(answers(cuda::mamba_scan, one) == answers(cuda::ssd_chunked, one));
    const auto by_token = [](cuda::Stream& stream, MambaScan op) {
      op.token_by_token = true;
      cuda::mamba_scan(stream, op);
    };
    CHECK(answers(invariant, one) == answers(cuda::ssd_scan, one));
    CHECK(answers(by_token, one) == answers(cuda::ssd_scan, one));
    CHECK(answers(cuda::mamba_scan, one) != answers(invariant, one));
    CHECK(answers(cuda::mamba_scan, many) == answers(cuda::ssd_scan, many));
  }

  TEST_CASE("no plan has more segments than the workspace is for") {
    std::mt19937 engine(5);
    for (int i = 0; i < 2000; ++i) {
      const std::int64_t tokens = 1 + static_cast<std::int64_t>(engine() % 100'000);
      const std::int64_t spans = 1 + static_cast<std::int64_t>(engine() % 300);
      const std::int64_t heads = 1 + static_cast<std::int64_t>(engine() % 300);
      const SsdSegments plan = ssd_segments(tokens, spans, heads, 128, 128);
      if (plan.tokens == 0) continue;
      CHECK(plan.tokens % ssd_chunk_tokens == 0);
      CHECK(plan.count <= ssd_segments_max(heads, 128, 128));
    }
  }
}

}  // namespace

}  // namespace hyb::kernels::testing::ssd_test
