#include "kernels/ops/delta_rule.h"

#include <doctest/doctest.h>

#include "tests/kernels/ops/chain_case.h"
#include "tests/kernels/ops/delta_rule_case.h"

namespace ops_delta_rule_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType f32 = DType::f32, b16 = DType::bf16;

const DeltaSizes shapes[] = {{19, 2, 4, 16, 32},
                             {7, 3, 3, 20, 20},
                             {35, 1, 2, 128, 128},
                             {3, 1, 3, 256, 256},
                             {2, 1, 1, 1, 1},
                             {18, 2, 2, 33, 100},
                             {1, 1, 2, 128, 128},
                             {5, 1, 1, 24, 48},
                             {19, 2, 6, 16, 20, true},
                             {35, 2, 2, 24, 48, false, 2.0F},
                             {19, 2, 2, 16, 32, false, 1.0F, true},
                             {35, 1, 1, 128, 128, false, 1.0F, true, -5.0F},
                             {18, 3, 3, 33, 20, false, 2.0F, true, -1.5F}};

/// |actual - wanted| in terms of |wanted| and of the largest wanted.
void check_close(const TestTensor& actual, const std::vector<double>& wanted, double relative,
                 double absolute, std::int64_t first = 0) {
  double scale = 0;
  for (const double value : wanted) scale = std::max(scale, std::fabs(value));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double error = std::fabs(actual.get(first + static_cast<std::int64_t>(i)) - wanted[i]);
    REQUIRE(error <= relative * std::fabs(wanted[i]) + absolute * scale + 1e-30);
  }
}

/// Runs all tokens as one span from slot 1 (or zeros) into slot 2, against the doubles.
void check_whole(Isa isa, DeltaInputs& in, bool from_zeros, double absolute) {
  Queue queue = test_queue(isa, 2);
  std::vector<double> state = in.state_of(1);
  if (from_zeros) state.assign(state.size(), 0.0);
  const std::vector<double> wanted = recur(in, state);
  const auto x = in.x.everything(), ba = in.ba.everything();
  in.run(queue, {0, static_cast<std::int32_t>(in.s.tokens)}, {from_zeros ? -1 : 1}, {2});
  CHECK(in.y.guards_intact());
  CHECK(in.state.guards_intact());
  CHECK(in.x.everything() == x);
  CHECK(in.ba.everything() == ba);
  const double rounding = 0x1p-8;
  check_close(in.y, wanted, in.y.view().dtype == b16 ? rounding : 1e-6, absolute);
  check_close(in.state, state, in.state.view().dtype == b16 ? rounding : 1e-6, absolute,
              2 * in.s.slot_size());
}

TEST_SUITE("kernels/ops/delta_rule") {
  TEST_CASE("is the recurrence on every route") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {f32, b16}) {
        for (const DeltaSizes& shape : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(shape.columns);
          for (const bool from_zeros : {false, true}) {
            DeltaInputs in(dtype, shape, 3);
            check_whole(isa, in, from_zeros, 2e-6);
          }
        }
      }
    }
  }

  TEST_CASE("a bf16 state is rounded after every token, on every route") {
    for (const Isa isa : available_isas()) {
      for (const DType dtype : {f32, b16}) {
        for (const DeltaSizes& shape : shapes) {
          CAPTURE(name_of(isa));
          CAPTURE(shape.columns);
          DeltaInputs in(dtype, shape, 3, b16);
          // Where a sum is close to the middle of two bf16 numbers, either may come out.
          check_whole(isa, in, false, 5e-3);
        }
      }
    }
  }

  TEST_CASE("gates at their ends: nothing is written, all is forgotten, nothing is") {
    constexpr float huge = 1e4F;
    for (const Isa isa : available_isas()) {
      for (const float b : {-huge, 0.0F, huge}) {
        for (const float a : {-huge, 0.0F, 25.0F, huge}) {
          CAPTURE(name_of(isa));
          CAPTURE(b);
          CAPTURE(a);
          DeltaInputs in(f32, {21, 1, 2, 24, 40}, 3);
          in.set_all_b(b);
          in.set_all_a(a);
          check_whole(isa, in, false, 2e-6);
          const std::vector<double> before = in.state_of(1), after = in.state_of(2);
          if (b == -huge && a == -huge) CHECK(before == after);
          if (b == -huge && a == huge) CHECK(after == std::vector<double>(after.size(), 0.0));
        }
      }
    }
  }

  TEST_CASE("keys and queries of zeros, of huge and of tiny numbers") {
    for (const Isa isa : available_isas()) {
      for (const float scale : {0.0F, 1e-5F, 1e15F}) {
        CAPTURE(name_of(isa));
        CAPTURE(scale);
        DeltaInputs in(f32, {18, 1, 2, 20, 36}, 3);
        for (std::int64_t t = 0; t < in.s.tokens; t += 2) {
          for (std::int64_t i = 0; i < 2 * in.s.rows; ++i) {
            const std::int64_t at = t * in.s.line() + i;
            in.x.set(at, scale * in.x.get(at));
          }
        }
        check_whole(isa, in, false, 2e-6);
      }
    }
  }

  TEST_CASE("a key that is queried again gives its value back") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa);
      DeltaInputs in(f32, {2, 1, 1, 16, 16}, 1);
      in.set_all_b(1e4F);   // overwrites all
      in.set_all_a(-1e4F);  // forgets nothing
      for (std::int64_t t = 0; t < 2; ++t) {
        for (std::int64_t i = 0; i < 32; ++i) {
          in.x.set(t * in.s.line() + i, i % 16 == 3 ? 1000.0F : 0.0F);
        }
      }
      in.run(queue, {0, 2}, {0}, {0});
      for (std::int64_t i = 0; i < 32; ++i) {
        const float value = in.x.get(i / 16 * in.s.line() + 32 + i % 16);
        CHECK(in.y.get(i) == doctest::Approx(value / 4).epsilon(1e-5));
      }
    }
  }

  TEST_CASE("cutting a sequence anywhere changes neither output nor state, on any threads") {
    std::mt19937 engine(5);
    for (const Isa isa : available_isas()) {
      for (const DeltaSizes& shape : shapes) {
        for (const DType state : {f32, b16}) {
          const std::int32_t tokens = shape.rows * shape.columns > 10000 ? 21 : 45;
          DeltaSizes s = shape;
          s.tokens = tokens;
          Queue one = test_queue(isa, 1);
          const DeltaInputs whole(b16, s, 2, state);
          whole.run(one, {0, tokens}, {1}, {1});
          for (int round = 0; round < 3; ++round) {
            Queue queue = test_queue(isa, 1 + round % 3);
            const DeltaInputs cut(b16, s, 2, state);
            const auto cuts = random_cuts(tokens, engine);
            for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
              cut.run(queue, {0, cuts[i + 1] - cuts[i]}, {1}, {1}, cuts[i]);
            }
            CHECK(same_bytes(cut.y, whole.y));
            CHECK(same_bytes(cut.state, whole.state));
          }
        }
      }
    }
  }

  TEST_CASE("a chain of spans leaves what a call for each of them leaves, on any threads") {
    std::mt19937 engine(9);
    int round = 0;
    for (const DeltaSizes& shape : shapes) {
      for (const DType state : {f32, b16}) {
        const ChainedSpans spans =
            random_chain(shape.rows * shape.columns > 10000 ? 9 : 37, engine);
        DeltaSizes s = shape;
        s.tokens = spans.begins.back();
        const DType dtype = round % 2 == 0 ? b16 : f32;
        check_chain(
            spans, 1 + round++ % 3,
            [&] { return DeltaInputs(dtype, s, std::max(spans.slots(), 4), state); },
            [](const DeltaInputs& in, Queue& queue, const Table& begins, const Table& read,
               const Table& write,
               std::int32_t first) { in.run(queue, begins, read, write, first); },
            [](const DeltaInputs& in) -> const TestTensor& { return in.state; });
      }
    }
  }

  TEST_CASE("spans that leave no state change nothing else, on any threads") {
    std::mt19937 engine(13);
    int round = 0;
    for (const DeltaSizes& shape : shapes) {
      for (const DType state : {f32, b16}) {
        const DiscardedSpans spans = random_discarded(engine);
        DeltaSizes s = shape;
        s.tokens = spans.kept.begins.back();
        const DType dtype = round % 2 == 0 ? b16 : f32;
        check_discarded(
            spans, 1 + round++ % 3,
            [&] { return DeltaInputs(dtype, s, DiscardedSpans::slots, state); },
            [](const DeltaInputs& in, Queue& queue, const Table& begins, const Table& read,
               const Table& write,
               std::int32_t first) { in.run(queue, begins, read, write, first); },
            [](const DeltaInputs& in) -> const TestTensor& { return in.state; });
      }
    }
  }

  TEST_CASE("permuting spans permutes outputs, and only the named slots are written") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 3);
      const DeltaSizes s{12, 2, 4, 20, 24};
      const std::int64_t half = 6 * s.line(), half_ba = 6 * 2 * 4, half_y = 6 * s.inner();
      DeltaInputs a(b16, s, 6), b(b16, s, 6);
      a.run(queue, {0, 5, 6, 12}, {0, -1, 0}, {3, 1, 5});
      for (std::int64_t i = 0; i < 2 * half; ++i) b.x.set(i, a.x.get((i + half) % (2 * half)));
      for (std::int64_t i = 0; i < 2 * half_ba; ++i) {
        b.ba.set(i, a.ba.get((i + half_ba) % (2 * half_ba)));
      }
      b.run(queue, {0, 6, 11, 12}, {0, 0, -1}, {5, 3, 1});
      CHECK(same_bytes(a.state, b.state));
      for (std::int64_t i = 0; i < 2 * half_y; ++i) {
        REQUIRE(b.y.get(i) == a.y.get((i + half_y) % (2 * half_y)));
      }
      const DeltaInputs untouched(b16, s, 6);
      for (const std::int64_t slot : {0, 2, 4}) {
        CHECK(a.state_of(slot) == untouched.state_of(slot));
      }
    }
  }

  TEST_CASE("NaN stays in its sequence, and in its head") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      const DeltaSizes s{9, 1, 2, 20, 36};
      const DeltaInputs clean(b16, s, 4);
      DeltaInputs in(b16, s, 4);
      in.x.set(2 * s.rows, NAN);                          // v of the first token's first head
      for (std::int64_t i = 0; i < s.slot_size(); ++i) {  // what is not read
        in.state.set(1 * s.slot_size() + i, NAN);
      }
      clean.run(queue, {0, 3, 4, 9}, {0, 3, -1}, {0, 3, 2});
      in.run(queue, {0, 3, 4, 9}, {0, 3, -1}, {0, 1, 2});
      CHECK(std::isnan(in.y.get(0)));
      for (std::int64_t i = s.columns; i < 2 * s.columns; ++i) CHECK(in.y.get(i) == clean.y.get(i));
      for (std::int64_t i = 3 * s.inner(); i < in.y.size(); ++i) {
        CHECK(in.y.get(i) == clean.y.get(i));
      }
      CHECK(in.state_of(1) == clean.state_of(3));
      CHECK(in.state_of(2) == clean.state_of(2));
    }
  }

  TEST_CASE("names the broken rule") {
    Queue queue = test_queue(Isa::plain);
    const DeltaInputs wide(f32, {1, 1, 1, 257, 1}, 1);
    CHECK_THROWS_WITH_AS(wide.run(queue, {0, 1}, {0}, {0}), "delta_rule: Dk is 1 to 256, got 257",
                         Error);
    const DeltaInputs long_values(f32, {1, 1, 1, 1, 257}, 1);
    CHECK_THROWS_WITH_AS(long_values.run(queue, {0, 1}, {0}, {0}),
                         "delta_rule: Dv is 1 to 256, got 257", Error);
    DeltaInputs in(f32, {2, 1, 3, 4, 8}, 1);
    in.s.key_heads = 2;
    CHECK_THROWS_WITH_AS(in.run(queue, {0, 2}, {0}, {0}),
                         "delta_rule: key_heads divides value_heads, got 2", Error);
    in.s.key_heads = 3;
    CHECK_THROWS_WITH_AS(in.run(queue, {0, 2}, {0}, {0}),
                         "delta_rule: x needs 48 in dimension 1, got 32", Error);
  }
}

}  // namespace

}  // namespace ops_delta_rule_test
