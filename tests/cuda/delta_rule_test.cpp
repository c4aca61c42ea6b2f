#include <algorithm>
#include <functional>
#include <set>

#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/recurrence.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/kernels/ops/delta_rule_case.h"

namespace hyb::kernels::testing::delta_rule_test {

namespace {

/// Spans of one call of delta_rule; every named slot is below delta_slots.
struct DeltaCase {
  std::int32_t key_heads = 1;
  std::int64_t value_heads = 1, rows = 64, columns = 32;
  DType dtype = b16, state = f32;
  bool tiled = false;
  float beta_scale = 1.0F;
  ChainedSpans spans = {};
  Strides strides = {};
  bool per_channel = false;
  float decay_floor = 0.0F;

  /// With room for tokens that no span has.
  DeltaInputs inputs(std::int64_t spare_tokens = 0) const;

  DeltaCase with(const ChainedSpans& others) const {
    DeltaCase other = *this;
    other.spans = others;
    return other;
  }
};
constexpr std::int64_t delta_slots = 10;

DeltaInputs DeltaCase::inputs(std::int64_t spare_tokens) const {
  return DeltaInputs(dtype,
                     {spans.begins.back() + spare_tokens, key_heads, value_heads, rows, columns,
                      tiled, beta_scale, per_channel, decay_floor},
                     delta_slots, state, strides);
}

/// The plain loop; y and state of `in` become its answer.
void run_plain(const DeltaCase& c, DeltaInputs& in) {
  Queue plain = test_queue(Isa::plain);
  in.run(plain, Table(c.spans.begins), Table(c.spans.read), Table(c.spans.write));
}

using DeltaRoute = std::function<void(cuda::Stream&, const DeltaRule&)>;

/// A route's answer, with some spans after the real ones that have neither tokens nor slots.
RecurrentAnswer run_route(const DeltaRoute& route, const DeltaCase& c, const DeltaInputs& in,
                          bool replayed = false, std::size_t spare_spans = 2) {
  cuda::Stream stream;
  const DeviceTensor x(in.x), ba(in.ba), rate(in.rate), dt_bias(in.dt_bias), state(in.state),
      y(in.y);
  const DeviceTable begins(padded(c.spans.begins, c.spans.begins.back(), spare_spans)),
      read(padded(c.spans.read, -1, spare_spans)), write(padded(c.spans.write, -1, spare_spans));
  const DeltaRule op = {.x = x,
                        .b = Tensor(ba).columns(0, c.value_heads),
                        .a = Tensor(ba).columns(c.value_heads, in.s.decays()),
                        .rate = rate,
                        .dt_bias = dt_bias,
                        .state = state,
                        .span_begin = begins,
                        .read_slot = read,
                        .write_slot = write,
                        .y = y,
                        .shape = {.key_heads = c.key_heads,
                                  .tiled = c.tiled,
                                  .beta_scale = c.beta_scale,
                                  .per_channel = c.per_channel,
                                  .decay_floor = c.decay_floor}};
  run_or_replay(stream, replayed, [&] { route(stream, op); });
  CHECK(x.fetch().everything() == in.x.everything());
  CHECK(ba.fetch().everything() == in.ba.everything());
  return {y.fetch(), state.fetch()};
}

/// A route's answer in a call for every span.
RecurrentAnswer run_apart(const DeltaRoute& route, const DeltaCase& c, const DeltaInputs& in) {
  cuda::Stream stream;
  const DeviceTensor x(in.x), ba(in.ba), rate(in.rate), dt_bias(in.dt_bias), state(in.state),
      y(in.y);
  c.spans.each([&](const Table& begin, const Table& from, const Table& to, std::int32_t first) {
    const DeviceTable begins(begin.values()), read(from.values()), write(to.values());
    const std::int32_t tokens = begin.values()[1];
    const Tensor both = Tensor(ba).rows(first, tokens);
    route(stream, {.x = Tensor(x).rows(first, tokens),
                   .b = both.columns(0, c.value_heads),
                   .a = both.columns(c.value_heads, in.s.decays()),
                   .rate = rate,
                   .dt_bias = dt_bias,
                   .state = state,
                   .span_begin = begins,
                   .read_slot = read,
                   .write_slot = write,
                   .y = Tensor(y).rows(first, tokens),
                   .shape = {.key_heads = c.key_heads,
                             .tiled = c.tiled,
                             .beta_scale = c.beta_scale,
                             .per_channel = c.per_channel,
                             .decay_floor = c.decay_floor}});
    stream.wait();
  });
  return {y.fetch(), state.fetch()};
}

/// Only the named slots and the spans' rows have changed.
void check_untouched(const DeltaCase& c, const DeltaInputs& before, const RecurrentAnswer& after) {
  CHECK(after.y.guards_intact());
  check_slots(c.spans.write, before.state, after.state);
  const std::vector<std::byte> old = before.y.packed(), now = after.y.packed();
  const auto row_bytes = static_cast<std::ptrdiff_t>(old.size()) / before.s.tokens;
  CHECK(std::equal(old.begin() + c.spans.begins.back() * row_bytes, old.end(),
                   now.begin() + c.spans.begins.back() * row_bytes));
}

/// A chain's one call leaves the bytes of a call for each of its spans; `apart` answers those.
void check_chain(const DeltaRoute& route, const DeltaRoute& apart, const DeltaCase& c,
                 bool replayed = false, std::size_t spare_spans = 2) {
  CAPTURE(c.rows);
  CAPTURE(c.columns);
  const DeltaInputs in = c.inputs(2);
  const RecurrentAnswer chain = run_route(route, c, in, replayed, spare_spans),
                        pieces = run_apart(apart, c, in);
  CHECK(same_rows(chain.y, pieces.y, c.spans.begins.back()));
  CHECK(chain.state.everything() == pieces.state.everything());
  check_untouched(c, in, chain);
}

const DeltaCase cases[] = {
    {.key_heads = 2,
     .value_heads = 4,
     .rows = 32,
     .spans = {{0, 19, 20, 28}, {0, -1, 3}, {0, 4, 2}},
     .strides = {8, 8}},
    {.value_heads = 2,
     .rows = 20,
     .columns = 36,
     .dtype = f32,
     .spans = {{0, 3, 12}, {2, 5}, {1, 5}}},
    {.value_heads = 2, .rows = 128, .columns = 128, .state = b16, .spans = {{0, 9}, {4}, {4}}},
    {.rows = 128, .columns = 80, .spans = {{0, 1, 2, 3}, {-1, 1, 5}, {0, 1, 2}}},
    {.value_heads = 3,
     .rows = 33,
     .columns = 7,
     .spans = {{0, 1, 11}, {-1, 1}, {0, 1}},
     .strides = {3, 1}},
    {.rows = 200, .columns = 20, .dtype = f32, .state = b16, .spans = {{0, 17}, {-1}, {3}}},
    {.rows = 256, .columns = 16, .spans = {{0, 8}, {3}, {2}}},
    {.key_heads = 3,
     .value_heads = 3,
     .columns = 40,
     .dtype = f32,
     .spans = {{0, 6}, {3}, {2}},
     .strides = {1, 0}},
    {.value_heads = 2, .spans = {{0, 5, 9, 12, 13}, {1, 4, 3, 5}, {4, -1, -1, 5}}},  // drafts
    {.key_heads = 2,
     .value_heads = 4,
     .rows = 32,
     .tiled = true,
     .beta_scale = 2.0F,
     .spans = {{0, 6}, {3}, {2}}},
    {.value_heads = 2,
     .rows = 128,
     .columns = 36,
     .spans = {{0, 19, 20, 28}, {0, -1, 3}, {0, 4, 2}},
     .strides = {8, 8},
     .per_channel = true},
    {.key_heads = 2,
     .value_heads = 4,
     .rows = 20,
     .columns = 20,
     .dtype = f32,
     .spans = {{0, 5, 9, 12, 13}, {1, 4, 3, 5}, {4, -1, -1, 5}},
     .per_channel = true,
     .decay_floor = -5.0F},
    {.rows = 200, .columns = 20, .state = b16, .spans = {{0, 9}, {4}, {4}}, .per_channel = true},
};

void scan(cuda::Stream& stream, const DeltaRule& op) { cuda::delta_rule_scan(stream, op); }

void check_case(const DeltaCase& c, bool replayed) {
  CAPTURE(c.rows);
  CAPTURE(c.columns);
  const DeltaInputs before = c.inputs(2);
  DeltaInputs in = before;
  run_plain(c, in);
  const RecurrentAnswer answer = run_route(scan, c, before, replayed);
  const double y_bound = c.state == b16 ? 0.05 : c.dtype == b16 ? 0x1p-8 : 2e-5;
  CHECK(largest_error(answer.y, in.y, c.state == b16 ? 1.0 : 0.1) <= y_bound);
  CHECK(largest_error(answer.state, in.state, 0.5) <= (c.state == b16 ? 0.03 : 2e-5));
  check_untouched(c, before, answer);
}

/// The tokens of the case's only span, cut up into calls.
RecurrentAnswer cut_answer(const DeltaCase& whole, const std::vector<std::int32_t>& cuts) {
  const DeltaInputs in = whole.inputs();
  RecurrentAnswer all = {in.y, in.state};
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    DeltaCase c = whole;
    c.spans.begins = {0, cuts[i + 1] - cuts[i]};
    DeltaInputs piece = c.inputs();
    for (std::int64_t j = 0; j < piece.x.size(); ++j) {
      piece.x.set(j, in.x.get(cuts[i] * in.s.line() + j));
    }
    for (std::int64_t j = 0; j < piece.ba.size(); ++j) {
      piece.ba.set(j, in.ba.get(cuts[i] * (in.s.value_heads + in.s.decays()) + j));
    }
    piece.state = all.state;
    const RecurrentAnswer answer = run_route(scan, c, piece);
    for (std::int64_t j = 0; j < answer.y.size(); ++j) {
      all.y.set(cuts[i] * in.s.inner() + j, answer.y.get(j));
    }
    all.state = answer.state;
  }
  return all;
}

TEST_SUITE("cuda/delta_rule_scan") {
  TEST_CASE("is the plain loop's answer; only the named slots change") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DeltaCase& c : cases) {
        check_case(c, false);
        check_case(c, true);
      }
    });
  }

  TEST_CASE("cuts change no bit") {
    std::mt19937 engine(3);
    for (const auto& [state, per_channel] : {std::pair(f32, false), {b16, false}, {f32, true}}) {
      const DeltaCase c = {.value_heads = 2,
                           .rows = 40,
                           .columns = 72,
                           .state = state,
                           .spans = {{0, 30}, {1}, {1}},
                           .per_channel = per_channel};
      const RecurrentAnswer whole = cut_answer(c, {0, 30});
      for (int i = 0; i < 4; ++i) {
        const RecurrentAnswer cut = cut_answer(c, random_cuts(30, engine));
        CHECK(same_bytes(cut.y, whole.y));
        CHECK(same_bytes(cut.state, whole.state));
      }
    }
  }

  TEST_CASE("a chain of spans leaves the bytes of a call for each of them") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DeltaCase& c : cases) {
        check_chain(scan, scan, c.with(chained({0, 1, 2, 8, 9, 20}, false, true)));
      }
      check_chain(scan, scan, cases[0].with(chained({0, 7, 15, 16, 17}, true, false)), true);
      check_chain(scan, scan, cases[2].with(chained({0, 8, 16}, false, false)), true);
    });
  }

  TEST_CASE("gates at their ends, and keys of zeros") {
    for (const float b : {-1e4F, 1e4F}) {
      for (const float a : {-1e4F, 1e4F}) {
        CAPTURE(a);
        CAPTURE(b);
        const DeltaCase c = {.rows = 20, .columns = 16, .dtype = f32, .spans = {{0, 11}, {1}, {2}}};
        DeltaInputs before = c.inputs();
        before.set_all_a(a);
        before.set_all_b(b);
        for (std::int64_t i = 0; i < 2 * c.rows; ++i) before.x.set(3 * before.s.line() + i, 0.0F);
        DeltaInputs in = before;
        run_plain(c, in);
        const RecurrentAnswer answer = run_route(scan, c, before);
        CHECK(largest_error(answer.y, in.y, 0.1) <= 2e-5);
        CHECK(largest_error(answer.state, in.state, 0.5) <= 2e-5);
      }
    }
  }

  TEST_CASE("NaN stays in its sequence") {
    const DeltaCase c = {
        .value_heads = 2, .rows = 32, .spans = {{0, 3, 4, 9}, {0, 3, -1}, {0, 1, 2}}};
    const DeltaInputs clean = c.inputs();
    DeltaInputs in = clean;
    in.x.set(0, NAN);
    const RecurrentAnswer wanted = run_route(scan, c, clean);
    const RecurrentAnswer answer = run_route(scan, c, in);
    CHECK(std::isnan(answer.y.get(0)));
    for (std::int64_t i = 3 * in.s.inner(); i < answer.y.size(); ++i) {
      CHECK(answer.y.get(i) == wanted.y.get(i));
    }
  }
}

/// As much as the case can use.
Workspace workspace_of(const DeltaCase& c, std::int64_t spare_tokens = 0,
                       std::size_t spare_spans = 2) {
  const auto spans = static_cast<std::int64_t>(c.spans.read.size() + spare_spans);
  return Workspace(delta_rule_workspace_bytes(Device::cuda, c.spans.begins.back() + spare_tokens,
                                              spans, c.value_heads, c.per_channel ? c.rows : 0));
}

/// The chunked form in a workspace.
DeltaRoute chunked(const Workspace& workspace) {
  return [&](cuda::Stream& stream, DeltaRule op) {
    op.workspace = workspace.view();
    REQUIRE(cuda::delta_rule_chunked_takes(op));
    cuda::delta_rule_chunked(stream, op);
  };
}

/// How far the chunked form may be from the plain loop, in terms of the largest value and number in
/// the state.
constexpr double y_bound = 0x1p-9, state_bound = 0x1p-7;

double largest(const TestTensor& tensor) {
  double most = 0;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    most = std::max<double>(most, std::fabs(tensor.get(i)));
  }
  return most;
}

void check_within(const TestTensor& answer, const TestTensor& wanted, double absolute,
                  double rounding) {
  double worst = 0;
  for (std::int64_t i = 0; i < wanted.size(); ++i) {
    const double error = std::fabs(static_cast<double>(answer.get(i)) - wanted.get(i));
    const double allowed = absolute + rounding * std::fabs(wanted.get(i)) + 1e-30;
    if (!(error / allowed <= worst)) worst = std::isnan(error) ? INFINITY : error / allowed;
  }
  CHECK(worst <= 1.0);
}

void check_inputs(const DeltaCase& c, const DeltaInputs& before, bool replayed = false,
                  std::size_t spare_spans = 2) {
  CAPTURE(c.rows);
  CAPTURE(c.columns);
  DeltaInputs in = before;  // the chunked form keeps f32 until a span ends
  in.state =
      converted(before.state, f32, {delta_slots, c.value_heads, c.rows, c.columns}, c.strides);
  run_plain(c, in);
  const Workspace workspace = workspace_of(c, before.s.tokens - c.spans.begins.back());
  const RecurrentAnswer answer = run_route(chunked(workspace), c, before, replayed, spare_spans);
  const double largest_input = std::max(largest(before.x), largest(before.state));
  const double scale = c.per_channel ? 2 * largest_input : largest_input;
  check_within(answer.y, in.y, y_bound * scale, 0x1p-8);
  check_within(answer.state, in.state, state_bound * scale, c.state == b16 ? 0x1p-8 : 1e-6);
  check_untouched(c, before, answer);
}

const DeltaCase chunked_cases[] = {
    {.value_heads = 2, .spans = {{0, 130, 131, 151}, {0, -1, 3}, {0, 4, 2}}, .strides = {8, 8}},
    {.rows = 128, .columns = 64, .state = b16, .spans = {{0, 65, 129}, {4, -1}, {4, 2}}},
    {.key_heads = 2, .value_heads = 2, .columns = 96, .spans = {{0, 48}, {-1}, {5}}},
    {.rows = 128, .spans = {{0, 17}, {1}, {2}}},
    {.spans = {{0, 63, 127, 191, 192}, {0, 1, 2, 3}, {0, 1, 2, 3}}},
    {.key_heads = 2,
     .value_heads = 4,
     .tiled = true,
     .beta_scale = 2.0F,
     .spans = {{0, 70}, {3}, {2}}},
    {.value_heads = 2,
     .rows = 128,
     .spans = {{0, 130, 131, 151}, {0, -1, 3}, {0, 4, 2}},
     .per_channel = true},
    {.state = b16,
     .spans = {{0, 63, 127}, {0, 1}, {0, 2}},
     .per_channel = true,
     .decay_floor = -5.0F},
};

TEST_SUITE("cuda/delta_rule_chunked") {
  TEST_CASE("is within its bounds of the plain loop; only the named slots change") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DeltaCase& c : chunked_cases) check_inputs(c, c.inputs(70));
      check_inputs(chunked_cases[0], chunked_cases[0].inputs(), true);
    });
  }

  TEST_CASE("how many blocks share a head changes no bit") {
    for (const DeltaCase& c : chunked_cases) {
      CAPTURE(c.rows);
      const DeltaInputs in = c.inputs(70);
      // More spans than a card has multiprocessors: blocks have more columns.
      constexpr std::size_t many = 400;
      const Workspace workspace = workspace_of(c, 70, many);
      const RecurrentAnswer few = run_route(chunked(workspace), c, in, false, 2),
                            all = run_route(chunked(workspace), c, in, false, many);
      CHECK(few.y.everything() == all.y.everything());
      CHECK(few.state.everything() == all.state.everything());
    }
  }

  TEST_CASE("a span without others goes in chunks, however short") {
    for (const std::int32_t tokens : {1, 15, 64}) {
      const DeltaCase c = {.spans = {{0, tokens}, {1}, {2}}};
      check_inputs(c, c.inputs(70), false, 0);
    }
  }

  TEST_CASE("short spans next to a long one have the bits of the scan") {
    const DeltaCase c = {.state = b16, .spans = {{0, 16, 17, 87, 90}, {0, 1, 2, 3}, {0, 1, 2, 3}}};
    const Workspace workspace = workspace_of(c);
    const RecurrentAnswer scanned = run_route(scan, c, c.inputs());
    const RecurrentAnswer mixed = run_route(chunked(workspace), c, c.inputs());
    const std::int64_t inner = 32, size = 64 * 32;
    for (std::int64_t i = 0; i < mixed.y.size(); ++i) {
      if (i / inner < 17 || i / inner >= 87) CHECK(mixed.y.get(i) == scanned.y.get(i));
    }
    for (std::int64_t i = 0; i < 4 * size; ++i) {
      if (i / size != 2) CHECK(mixed.state.get(i) == scanned.state.get(i));
    }
    CHECK(!same_bytes(mixed.y, scanned.y));
  }

  TEST_CASE(
      "a chain goes in chunks, or by the scan where all of it is short; cuts are spans' ends") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DeltaCase& shape : {chunked_cases[0], chunked_cases[1]}) {
        for (const ChainedSpans& spans :
             {ChainedSpans{{0, 1, 64, 65, 67, 140}, {3, 4, 5, 6, 7}, {4, 5, 6, 7, 8}},
              ChainedSpans{{0, 129, 130}, {-1, 1}, {1, 2}},
              ChainedSpans{{0, 16, 17}, {2, 2}, {2, 3}}}) {
          const DeltaCase c = shape.with(spans);
          const Workspace workspace = workspace_of(c, 2);
          check_chain(chunked(workspace), chunked(workspace), c, false);
        }
      }
    });
    const DeltaCase shape = {.state = b16};
    // Neighbours are short, and so is all of this chain.
    const DeltaCase c = shape.with(chained({0, 3, 4, 16}, false, true));
    const Workspace workspace = workspace_of(c, 2);
    check_chain(chunked(workspace), scan, c, true);
    check_inputs(shape.with(chained({0, 5, 80, 81}, true, false)),
                 shape.with(chained({0, 5, 80, 81}, true, false)).inputs(), true);
    check_inputs(shape.with(chained({0, 70, 71}, false, true)),
                 shape.with(chained({0, 70, 71}, false, true)).inputs());
  }

  TEST_CASE("gates at their ends, or either in turn") {
    std::mt19937 engine(17);
    for (const bool per_channel : {false, true}) {
      CAPTURE(per_channel);
      const DeltaCase c = {.spans = {{0, 100}, {1}, {2}}, .per_channel = per_channel};
      for (const float b : {-1e4F, 0.0F, 1e4F}) {
        for (const float a : {-1e4F, 1e4F}) {
          CAPTURE(a);
          CAPTURE(b);
          DeltaInputs in = c.inputs();
          in.set_all_a(a);
          in.set_all_b(b);
          check_inputs(c, in);
        }
      }
      DeltaInputs mixed = c.inputs();
      for (std::int64_t i = 0; i < mixed.ba.size(); ++i) {
        if (engine() % 4 == 0) mixed.ba.set(i, engine() % 2 == 0 ? -60.0F : 900.0F);
      }
      check_inputs(c, mixed);
    }
  }

  TEST_CASE("one key again and again, keys of zeros, of huge and of tiny numbers") {
    const DeltaCase c = {.spans = {{0, 130}, {1}, {2}}};
    for (const float scale : {1.0F, 0.0F, 1e15F, 1e-5F}) {
      CAPTURE(scale);
      DeltaInputs in = c.inputs();
      in.set_all_a(-8.0F);
      in.set_all_b(8.0F);
      for (std::int64_t t = 1; t < in.s.tokens; ++t) {
        for (std::int64_t i = 0; i < 2 * c.rows; ++i) {
          const std::int64_t at = t * in.s.line() + i;
          if (scale == 1.0F) in.x.set(at, in.x.get(i));  // the first token's
          if (t % 3 != 0) in.x.set(at, scale * in.x.get(at));
        }
      }
      double values = 0;  // the bound is in terms of values, not of such keys
      for (std::int64_t t = 0; t < in.s.tokens; ++t) {
        for (std::int64_t j = 0; j < c.columns; ++j) {
          values = std::max<double>(values, std::fabs(in.x.get(t * in.s.line() + 128 + j)));
        }
      }
      DeltaInputs plain = in;
      run_plain(c, plain);
      const Workspace workspace = workspace_of(c);
      const RecurrentAnswer answer = run_route(chunked(workspace), c, in);
      values = std::max(values, largest(in.state));
      check_within(answer.y, plain.y, y_bound * values, 0x1p-8);
      check_within(answer.state, plain.state, state_bound * values, 1e-6);
    }
  }

  TEST_CASE("the same call gives the same bits, next to any other span") {
    const DeltaCase alone = {.spans = {{0, 90}, {2}, {2}}};
    DeltaCase beside = alone;
    beside.spans.begins = {0, 90, 180};
    beside.spans.read = {2, 0};
    beside.spans.write = {2, 0};
    const auto answer = [](const DeltaCase& c) {
      const Workspace workspace = workspace_of(c);
      return run_route(chunked(workspace), c, c.inputs());
    };
    const RecurrentAnswer first = answer(alone), second = answer(alone), third = answer(beside);
    CHECK(same_bytes(first.y, second.y));
    CHECK(same_bytes(first.state, second.state));
    for (std::int64_t i = 0; i < first.y.size(); ++i) CHECK(first.y.get(i) == third.y.get(i));
  }

  TEST_CASE("delta_rule: token by token where stream or caller ask for it, or spans are short") {
    const DeltaCase one = {.spans = {{0, 70}, {2}, {2}}};
    const DeltaCase many = {.spans = {{0, 12, 24, 25, 34}, {0, 1, 2, 3}, {0, 1, 2, 3}}};
    enum class Route { scan, chunked, dispatched, invariant, by_token, without_workspace };
    const auto answer = [](const DeltaCase& c, Route wanted) {
      const Workspace workspace = workspace_of(c);
      const auto route = [&](cuda::Stream& stream, DeltaRule op) {
        if (wanted != Route::without_workspace) op.workspace = workspace.view();
        stream.set_batch_invariant(wanted == Route::invariant);
        op.token_by_token = wanted == Route::by_token;
        if (wanted == Route::scan) return cuda::delta_rule_scan(stream, op);
        if (wanted == Route::chunked) return cuda::delta_rule_chunked(stream, op);
        cuda::delta_rule(stream, op);
      };
      return run_route(route, c, c.inputs()).y.packed();
    };
    CHECK(answer(one, Route::dispatched) == answer(one, Route::chunked));
    CHECK(answer(one, Route::scan) != answer(one, Route::chunked));
    CHECK(answer(one, Route::invariant) == answer(one, Route::scan));
    CHECK(answer(one, Route::by_token) == answer(one, Route::scan));
    CHECK(answer(one, Route::without_workspace) == answer(one, Route::scan));
    CHECK(answer(many, Route::dispatched) == answer(many, Route::scan));
  }

  TEST_CASE("every chunk has a place of its own") {
    std::mt19937 engine(5);
    for (int round = 0; round < 200; ++round) {
      const auto tokens = static_cast<std::int32_t>(1 + engine() % 3000);
      const std::vector<std::int32_t> begins = random_cuts(tokens, engine);
      const auto spans = static_cast<std::int64_t>(begins.size()) - 1;
      std::set<std::int64_t> places;
      std::int64_t chunks = 0;
      for (std::int64_t r = 0; r < spans; ++r) {
        const std::int64_t begin = begins[static_cast<std::size_t>(r)];
        const std::int64_t length = begins[static_cast<std::size_t>(r) + 1] - begin;
        for (std::int64_t i = 0; i * delta_chunk_tokens < length; ++i, ++chunks) {
          places.insert(begin / delta_chunk_tokens + r + i);
        }
      }
      CHECK(static_cast<std::int64_t>(places.size()) == chunks);
      CHECK(*places.rbegin() < delta_chunk_places(tokens, spans));
    }
  }
}

}  // namespace

}  // namespace hyb::kernels::testing::delta_rule_test
