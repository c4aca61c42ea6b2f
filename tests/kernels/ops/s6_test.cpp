#include <doctest/doctest.h>

#include "tests/kernels/ops/chain_case.h"
#include "tests/kernels/ops/s6_case.h"

namespace ops_s6_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// One channel alone, several vectors of channels and a part of one, columns of less than a vector,
/// of whole ones, and of more.
const S6Shape shapes[] = {{19, 33, 16}, {5, 4, 19}, {17, 16, 8},
                          {3, 20, 256}, {2, 1, 1},  {18, 37, 40}};

std::vector<std::pair<S6Shape, DType>> shapes_and_states() {
  std::vector<std::pair<S6Shape, DType>> all;
  for (const S6Shape& shape : shapes) {
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
          S6Inputs f(dtype, s, 3, state_dtype);
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
        const S6Shape s{45, shape.channels, shape.columns};
        Queue one = test_queue(isa, 1);
        S6Inputs whole(DType::bf16, s, 2, state);
        whole.run(one, {0, 45}, {1}, {1});
        for (int round = 0; round < 4; ++round) {
          Queue queue = test_queue(isa, 1 + round % 3);
          S6Inputs cut(DType::bf16, s, 2, state);
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
    const auto run = [](S6Inputs& f, Queue& queue, const Table& begins, const Table& read,
                        const Table& write,
                        std::int32_t first) { f.run(queue, begins, read, write, first); };
    const auto state_of = [](const S6Inputs& f) -> const TestTensor& { return f.state; };
    for (const auto& [shape, state] : shapes_and_states()) {
      const DType dtype = round % 2 == 0 ? DType::bf16 : DType::f32;
      const auto fixture = [&, state = state, shape = shape](std::int32_t tokens, int slots) {
        return S6Inputs(dtype, {tokens, shape.channels, shape.columns}, slots, state);
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
    S6Inputs wide(DType::f32, {1, 1, 257}, 1);
    CHECK_THROWS_WITH_AS(wide.run(queue, {0, 1}, {0}, {0}),
                         "selective_scan: N is 1 to 256, got 257", Error);
    S6Inputs many(DType::f32, {17, 3, 8}, 1);
    CHECK_THROWS_WITH_AS(many.run(queue, {0, 17}, {0}, {-1}),
                         "selective_scan: few tokens leave no state, got 17", Error);
    many.token_by_token = false;
    CHECK_THROWS_WITH_AS(many.run(queue, {0, 1}, {0}, {-1}),
                         "selective_scan: what leaves no state goes token by token, got 0", Error);
  }
}

}  // namespace

}  // namespace ops_s6_test
