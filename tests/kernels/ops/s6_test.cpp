#include "kernels/ops/s6.h"

#include <doctest/doctest.h>

#include "tests/kernels/ops/chain_case.h"

namespace ops_s6_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

struct Shape {
  std::int64_t tokens, channels, columns;
};

struct Fixture {
  Fixture(DType dtype, Shape shape, std::int64_t slots, DType state_dtype = DType::f32)
      : s(shape),
        x(random_tensor(dtype, {s.tokens, s.channels}, 1, 1.0F, {5, 1})),
        dt(random_tensor(dtype, {s.tokens, s.channels}, 2, 2.0F, {9, 1})),
        bc(random_tensor(dtype, {s.tokens, 2 * s.columns}, 3, 1.0F, {7, 1})),
        rate(random_tensor(DType::f32, {s.channels, s.columns}, 4, 1.0F)),
        d(random_tensor(DType::f32, {s.channels}, 5, 1.0F)),
        dt_bias(random_tensor(DType::f32, {s.channels}, 6, 1.0F)),
        state(random_tensor(state_dtype, {slots, s.channels, 1, s.columns}, 7, 1.0F, {13, 1})),
        y(dtype, {s.tokens, s.channels}, {3, 1}) {
    for (std::int64_t i = 0; i < rate.size(); ++i) rate.set(i, -0.05F - std::fabs(rate.get(i)));
  }

  void run(Queue& queue, const Table& begin, const Table& read, const Table& write,
           std::int64_t first = 0) {
    const std::int64_t tokens = begin.values().back();
    s6(queue, {.x = x.view().rows(first, tokens),
               .dt = dt.view().rows(first, tokens),
               .b = bc.view().rows(first, tokens).columns(0, s.columns),
               .c = bc.view().rows(first, tokens).columns(s.columns, s.columns),
               .rate = rate,
               .d = d,
               .dt_bias = dt_bias,
               .state = state,
               .span_begin = begin,
               .read_slot = read,
               .write_slot = write,
               .y = y.view().rows(first, tokens),
               .token_by_token = token_by_token});
  }

  Shape s;
  TestTensor x, dt, bc, rate, d, dt_bias, state, y;
  bool token_by_token = true;
};

/// The recurrence in doubles over all tokens, from and to `state`.
std::vector<double> recur(const Fixture& f, std::vector<double>& state) {
  const Shape& s = f.s;
  std::vector<double> y;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const double raw = static_cast<double>(f.dt.get(t * s.channels + c)) + f.dt_bias.get(c);
      const double dt = raw > 20.0 ? raw : std::log1p(std::exp(raw));
      const double x = f.x.get(t * s.channels + c);
      double sum = f.d.get(c) * x;
      for (std::int64_t n = 0; n < s.columns; ++n) {
        double& cell = state[static_cast<std::size_t>(c * s.columns + n)];
        const std::int64_t b = 2 * t * s.columns + n;
        cell = std::exp(dt * f.rate.get(c * s.columns + n)) * cell + dt * x * f.bc.get(b);
        if (f.state.view().dtype == DType::bf16) {
          cell = to_float(to_bf16(static_cast<float>(cell)));
        }
        sum += cell * f.bc.get(b + s.columns);
      }
      y.push_back(sum);
    }
  }
  return y;
}

/// One channel alone, several vectors of channels and a part of one, columns of less than a vector,
/// of whole ones, and of more.
const Shape shapes[] = {{19, 33, 16}, {5, 4, 19}, {17, 16, 8},
                        {3, 20, 256}, {2, 1, 1},  {18, 37, 40}};

std::vector<std::pair<Shape, DType>> shapes_and_states() {
  std::vector<std::pair<Shape, DType>> all;
  for (const Shape& shape : shapes) {
    all.emplace_back(shape, DType::f32);
    all.emplace_back(shape, DType::bf16);
  }
  return all;
}

TEST_SUITE("kernels/ops/s6") {
  TEST_CASE("is the recurrence on every route, with a state of either type") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const auto& [s, state_dtype] : shapes_and_states()) {
          CAPTURE(name_of(isa));
          CAPTURE(s.columns);
          Queue queue = test_queue(isa, 2);
          Fixture f(dtype, s, 3, state_dtype);
          const std::int64_t size = s.channels * s.columns;
          std::vector<double> state;
          for (std::int64_t i = 0; i < size; ++i) state.push_back(f.state.get(size + i));
          const std::vector<double> want = recur(f, state);
          f.run(queue, {0, static_cast<std::int32_t>(s.tokens)}, {1}, {2});
          CHECK(f.y.guards_intact());
          CHECK(f.state.guards_intact());
          double scale = 0;
          for (const double v : want) scale = std::max(scale, std::fabs(v));
          // Where a number is close to the middle of two bf16 ones, either may come out.
          const bool rounds = state_dtype == DType::bf16;
          const double slack = (rounds ? 4e-3 : 2e-6) * scale;
          const double bound = dtype == DType::bf16 ? 0.00391 : 1e-6;
          for (std::int64_t i = 0; i < f.y.size(); ++i) {
            const double e = want[static_cast<std::size_t>(i)];
            REQUIRE(std::fabs(f.y.get(i) - e) <= bound * std::fabs(e) + slack);
          }
          for (std::int64_t i = 0; i < size; ++i) {
            const double e = state[static_cast<std::size_t>(i)];
            REQUIRE(std::fabs(f.state.get(2 * size + i) - e) <=
                    (rounds ? 0.016 : 1e-5) * std::max(1.0, std::fabs(e)));
          }
        }
      }
    }
  }

  TEST_CASE("cutting a sequence anywhere changes neither output nor state, on any threads") {
    std::mt19937 engine(5);
    for (const Isa isa : available_isas()) {
      for (const auto& [shape, state] : shapes_and_states()) {
        const Shape s{45, shape.channels, shape.columns};
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

  TEST_CASE("chains of spans, and spans that leave no state, on any threads") {
    std::mt19937 engine(9);
    int round = 0;
    const auto run = [](Fixture& f, Queue& queue, const Table& begins, const Table& read,
                        const Table& write,
                        std::int32_t first) { f.run(queue, begins, read, write, first); };
    const auto state_of = [](const Fixture& f) -> const TestTensor& { return f.state; };
    for (const auto& [shape, state] : shapes_and_states()) {
      const DType dtype = round % 2 == 0 ? DType::bf16 : DType::f32;
      const auto fixture = [&, state = state, shape = shape](std::int32_t tokens, int slots) {
        return Fixture(dtype, {tokens, shape.channels, shape.columns}, slots, state);
      };
      const ChainedSpans chain = random_chain(37, engine);
      check_chain(
          chain, 1 + round % 3,
          [&] { return fixture(chain.begins.back(), std::max(chain.slots(), 4)); }, run, state_of);
      const DiscardedSpans discarded = random_discarded(engine);
      check_discarded(
          discarded, 1 + round++ % 3,
          [&] {
            return fixture(discarded.kept.begins.back(), static_cast<int>(DiscardedSpans::slots));
          },
          run, state_of);
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    Fixture wide(DType::f32, {1, 1, 257}, 1);
    CHECK_THROWS_WITH_AS(wide.run(queue, {0, 1}, {0}, {0}), "s6: N is 1 to 256, got 257", Error);
    Fixture many(DType::f32, {17, 3, 8}, 1);
    CHECK_THROWS_WITH_AS(many.run(queue, {0, 17}, {0}, {-1}),
                         "s6: few tokens leave no state, got 17", Error);
    many.token_by_token = false;
    CHECK_THROWS_WITH_AS(many.run(queue, {0, 1}, {0}, {-1}),
                         "s6: what leaves no state goes token by token, got 0", Error);
  }
}

}  // namespace

}  // namespace ops_s6_test
