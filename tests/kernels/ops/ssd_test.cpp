#include "kernels/ops/ssd.h"

#include <doctest/doctest.h>

#include "tests/kernels/ops/chain_case.h"

namespace ops_ssd_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Shape {
  std::int64_t tokens, heads, rows, columns;
  std::int32_t groups;
};

struct Fixture {
  Fixture(DType dtype, Shape shape, std::int64_t slots, DType state_dtype = DType::f32)
      : s(shape),
        x(random_tensor(dtype, {s.tokens, s.heads * s.rows + 2 * s.groups * s.columns}, 1, 1.0F,
                        {5, 1})),
        dt(random_tensor(dtype, {s.tokens, s.heads}, 2, 2.0F, {9, 1})),
        rate(random_rates(s.heads, 3)),
        d(random_tensor(DType::f32, {s.heads}, 4, 1.0F)),
        dt_bias(random_tensor(DType::f32, {s.heads}, 5, 1.0F)),
        state(random_tensor(state_dtype, {slots, s.heads, s.rows, s.columns}, 6, 1.0F, {13, 1})),
        y(dtype, {s.tokens, s.heads * s.rows}, {3, 1}) {}

  void run(Queue& queue, const Table& begin, const Table& read, const Table& write,
           std::int64_t first = 0) {
    const std::int64_t tokens = begin.values().back();
    mamba_scan(queue, {.x = x.view().rows(first, tokens),
                       .dt = dt.view().rows(first, tokens),
                       .rate = rate,
                       .d = d,
                       .dt_bias = dt_bias,
                       .state = state,
                       .span_begin = begin,
                       .read_slot = read,
                       .write_slot = write,
                       .y = y.view().rows(first, tokens),
                       .token_by_token = token_by_token,
                       .shape = {.groups = s.groups, .dt_min = dt_min, .dt_max = dt_max}});
  }

  Shape s;
  TestTensor x, dt, rate, d, dt_bias, state, y;
  float dt_min = 0.0F, dt_max = INFINITY;
  bool token_by_token = true;
};

/// The recurrence in doubles over all tokens, from the state in `slot`.
void recur(const Fixture& f, std::vector<double> state, std::vector<double>& y) {
  const Shape& s = f.s;
  const std::int64_t inner = s.heads * s.rows, line = inner + 2 * s.groups * s.columns;
  y.assign(static_cast<std::size_t>(s.tokens * inner), 0.0);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const double raw = static_cast<double>(f.dt.get(t * s.heads + h)) + f.dt_bias.get(h);
      const double soft = raw > 20.0 ? raw : std::log1p(std::exp(raw));
      const double dt = std::clamp<double>(soft, f.dt_min, f.dt_max);
      const double decay = std::exp(dt * f.rate.get(h));
      const std::int64_t b = t * line + inner + h * s.groups / s.heads * s.columns;
      for (std::int64_t p = 0; p < s.rows; ++p) {
        const double x = f.x.get(t * line + h * s.rows + p);
        double sum = f.d.get(h) * x;
        for (std::int64_t n = 0; n < s.columns; ++n) {
          double& cell = state[static_cast<std::size_t>((h * s.rows + p) * s.columns + n)];
          cell = decay * cell + dt * x * f.x.get(b + n);
          if (f.state.view().dtype == DType::bf16)
            cell = to_float(to_bf16(static_cast<float>(cell)));
          sum += cell * f.x.get(b + s.groups * s.columns + n);
        }
        y[static_cast<std::size_t>(t * inner + h * s.rows + p)] = sum;
      }
    }
  }
}

const Shape shapes[] = {{19, 3, 12, 24, 1}, {5, 4, 20, 16, 2},  {17, 2, 32, 128, 1},
                        {3, 2, 64, 256, 1}, {33, 4, 80, 64, 4}, {2, 1, 1, 1, 1},
                        {18, 2, 33, 100, 2}};

std::vector<std::pair<Shape, DType>> shapes_and_states() {
  std::vector<std::pair<Shape, DType>> all;
  for (const Shape& shape : shapes) {
    all.emplace_back(shape, DType::f32);
    all.emplace_back(shape, DType::bf16);
  }
  return all;
}

TEST_SUITE("kernels/ops/ssd") {
  TEST_CASE("is the recurrence on every route") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Shape& s : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(s.columns);
          Queue queue = test_queue(isa, 2);
          Fixture f(dtype, s, 3);
          const std::int64_t size = s.heads * s.rows * s.columns;
          std::vector<double> state;
          for (std::int64_t i = 0; i < size; ++i) state.push_back(f.state.get(size + i));
          std::vector<double> want;
          recur(f, state, want);
          const auto x = f.x.everything(), dt = f.dt.everything();
          f.run(queue, {0, static_cast<std::int32_t>(s.tokens)}, {1}, {2});
          CHECK(f.y.guards_intact());
          CHECK(f.state.guards_intact());
          CHECK(f.x.everything() == x);
          CHECK(f.dt.everything() == dt);
          double scale = 0;
          for (const double v : want) scale = std::max(scale, std::fabs(v));
          const double bound = dtype == DType::bf16 ? 0.00391 : 1e-6;
          for (std::int64_t i = 0; i < f.y.size(); ++i) {
            const double e = want[static_cast<std::size_t>(i)];
            REQUIRE(std::fabs(f.y.get(i) - e) <= bound * std::fabs(e) + 2e-6 * scale);
          }
        }
      }
    }
  }

  TEST_CASE("a bf16 state is rounded after every token, on every route") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Shape& s : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(s.columns);
          Queue queue = test_queue(isa, 2);
          Fixture f(dtype, s, 3, DType::bf16);
          const std::int64_t size = s.heads * s.rows * s.columns;
          std::vector<double> state;
          for (std::int64_t i = 0; i < size; ++i) state.push_back(f.state.get(size + i));
          std::vector<double> want;
          recur(f, state, want);
          f.run(queue, {0, static_cast<std::int32_t>(s.tokens)}, {1}, {2});
          CHECK(f.y.guards_intact());
          CHECK(f.state.guards_intact());
          double scale = 0;
          for (const double v : want) scale = std::max(scale, std::fabs(v));
          // Where a sum is close to the middle of two bf16 numbers, either may come out.
          for (std::int64_t i = 0; i < f.y.size(); ++i) {
            const double e = want[static_cast<std::size_t>(i)];
            REQUIRE(std::fabs(f.y.get(i) - e) <= 0.00391 * std::fabs(e) + 1e-3 * scale);
          }
        }
      }
    }
  }

  TEST_CASE("dt is clamped, large dt passes softplus unchanged") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa);
      Fixture f(DType::f32, {4, 2, 16, 16, 1}, 1);
      f.dt_min = 0.5F;
      f.dt_max = 30.0F;
      for (std::int64_t i = 0; i < 8; ++i) f.dt.set(i, static_cast<float>(i) * 20.0F - 40.0F);
      std::vector<double> want;
      recur(f, std::vector<double>(2 * 16 * 16), want);
      f.run(queue, {0, 4}, {-1}, {0});
      for (std::int64_t i = 0; i < f.y.size(); ++i) {
        REQUIRE(f.y.get(i) == doctest::Approx(want[static_cast<std::size_t>(i)]).epsilon(1e-4));
      }
    }
  }

  TEST_CASE("cutting a sequence anywhere changes neither output nor state, on any threads") {
    std::mt19937 engine(5);
    for (const Isa isa : available_isas()) {
      for (const auto& [shape, state] : shapes_and_states()) {
        const Shape s{45, shape.heads, shape.rows, shape.columns, shape.groups};
        Queue one = test_queue(isa, 1);
        Fixture whole(DType::bf16, s, 2, state);
        whole.run(one, {0, 45}, {1}, {1});
        for (int round = 0; round < 4; ++round) {
          Queue queue = test_queue(isa, 1 + round % 3);
          Fixture cut(DType::bf16, s, 2, state);
          const auto cuts = random_cuts(45, engine);
          for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            cut.run(queue, {0, cuts[i + 1] - cuts[i]}, {1}, {1}, cuts[i]);
          }
          CHECK(same_bytes(cut.y, whole.y));
          CHECK(same_bytes(cut.state, whole.state));
        }
      }
    }
  }

  TEST_CASE("a chain of spans leaves what a call for each of them leaves, on any threads") {
    std::mt19937 engine(9);
    int round = 0;
    for (const auto& [shape, state] : shapes_and_states()) {
      const ChainedSpans spans = random_chain(shape.columns == 256 ? 9 : 37, engine);
      const Shape s{spans.begins.back(), shape.heads, shape.rows, shape.columns, shape.groups};
      const DType dtype = round % 2 == 0 ? DType::bf16 : DType::f32;
      check_chain(
          spans, 1 + round++ % 3,
          [&, state = state] { return Fixture(dtype, s, std::max(spans.slots(), 4), state); },
          [](Fixture& f, Queue& queue, const Table& begins, const Table& read, const Table& write,
             std::int32_t first) { f.run(queue, begins, read, write, first); },
          [](const Fixture& f) -> const TestTensor& { return f.state; });
    }
  }

  TEST_CASE("spans that leave no state change nothing else, on any threads") {
    std::mt19937 engine(13);
    int round = 0;
    for (const auto& [shape, state] : shapes_and_states()) {
      const DiscardedSpans spans = random_discarded(engine);
      const Shape s{spans.kept.begins.back(), shape.heads, shape.rows, shape.columns, shape.groups};
      const DType dtype = round % 2 == 0 ? DType::bf16 : DType::f32;
      check_discarded(
          spans, 1 + round++ % 3,
          [&, state = state] { return Fixture(dtype, s, DiscardedSpans::slots, state); },
          [](Fixture& f, Queue& queue, const Table& begins, const Table& read, const Table& write,
             std::int32_t first) { f.run(queue, begins, read, write, first); },
          [](const Fixture& f) -> const TestTensor& { return f.state; });
    }
  }

  TEST_CASE("permuting spans permutes outputs, and only the named slots are written") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 3);
      const Shape s{12, 4, 12, 24, 2};
      const std::int64_t half = 6 * (4 * 12 + 4 * 24), half_dt = 6 * 4, half_y = 6 * 4 * 12;
      Fixture a(DType::bf16, s, 6), b(DType::bf16, s, 6);
      a.run(queue, {0, 5, 6, 12}, {0, -1, 0}, {3, 1, 5});
      for (std::int64_t i = 0; i < half; ++i) b.x.set(i, a.x.get(half + i));
      for (std::int64_t i = 0; i < half; ++i) b.x.set(half + i, a.x.get(i));
      for (std::int64_t i = 0; i < half_dt; ++i) b.dt.set(i, a.dt.get(half_dt + i));
      for (std::int64_t i = 0; i < half_dt; ++i) b.dt.set(half_dt + i, a.dt.get(i));
      b.run(queue, {0, 6, 11, 12}, {0, 0, -1}, {5, 3, 1});
      CHECK(same_bytes(a.state, b.state));
      for (std::int64_t i = 0; i < half_y; ++i) {
        REQUIRE(a.y.get(half_y + i) == b.y.get(i));
        REQUIRE(a.y.get(i) == b.y.get(half_y + i));
      }
      const Fixture untouched(DType::bf16, s, 6);
      const std::int64_t size = 4 * 12 * 24;
      for (const std::int64_t slot : {0, 2, 4}) {
        for (std::int64_t i = slot * size; i < (slot + 1) * size; ++i) {
          REQUIRE(a.state.get(i) == untouched.state.get(i));
        }
      }
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    Fixture wide(DType::f32, {1, 1, 2, 257, 1}, 1);
    CHECK_THROWS_WITH_AS(wide.run(queue, {0, 1}, {0}, {0}), "mamba_scan: N is 1 to 256, got 257",
                         Error);
    Fixture f(DType::f32, {2, 3, 2, 8, 1}, 1);
    f.s.groups = 2;
    CHECK_THROWS_WITH_AS(f.run(queue, {0, 2}, {0}, {0}), "mamba_scan: groups divides heads, got 2",
                         Error);
    Fixture many(DType::f32, {17, 3, 2, 8, 1}, 1);
    CHECK_THROWS_WITH_AS(many.run(queue, {0, 17}, {0}, {-1}),
                         "mamba_scan: few tokens leave no state, got 17", Error);
    many.token_by_token = false;
    CHECK_THROWS_WITH_AS(many.run(queue, {0, 1}, {0}, {-1}),
                         "mamba_scan: what leaves no state goes token by token, got 0", Error);
  }
}

}  // namespace

}  // namespace ops_ssd_test
