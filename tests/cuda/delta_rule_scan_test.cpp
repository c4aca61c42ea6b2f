#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/delta_rule_cuda.h"
#include "tests/cuda/delta_rule_case.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType f32 = DType::f32, b16 = DType::bf16;

const DeltaCase cases[] = {
    {2, 4, 32, 32, b16, f32, {0, 19, 20, 28}, {0, -1, 3}, {0, 4, 2}, {8, 8}},
    {1, 2, 20, 36, f32, f32, {0, 3, 12}, {2, 5}, {1, 5}, {}},
    {1, 2, 128, 128, b16, b16, {0, 9}, {4}, {4}, {}},
    {1, 1, 128, 80, b16, f32, {0, 1, 2, 3}, {-1, 1, 5}, {0, 1, 2}, {}},
    {1, 3, 33, 7, b16, f32, {0, 1, 11}, {-1, 1}, {0, 1}, {3, 1}},
    {1, 1, 200, 20, f32, b16, {0, 17}, {-1}, {3}, {}},
    {1, 1, 256, 16, b16, f32, {0, 8}, {3}, {2}, {}},
    {3, 3, 64, 40, f32, f32, {0, 6}, {3}, {2}, {1, 0}},
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
    c.begins = {0, cuts[i + 1] - cuts[i]};
    DeltaInputs piece = c.inputs();
    for (std::int64_t j = 0; j < piece.x.size(); ++j) {
      piece.x.set(j, in.x.get(cuts[i] * in.s.line() + j));
    }
    for (std::int64_t j = 0; j < piece.ba.size(); ++j) {
      piece.ba.set(j, in.ba.get(cuts[i] * 2 * in.s.value_heads + j));
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
    for (const DType state : {f32, b16}) {
      const DeltaCase c = {1, 2, 40, 72, b16, state, {0, 30}, {1}, {1}, {}};
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
        const DeltaCase c = {1, 1, 20, 16, f32, f32, {0, 11}, {1}, {2}, {}};
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
    const DeltaCase c = {1, 2, 32, 32, b16, f32, {0, 3, 4, 9}, {0, 3, -1}, {0, 1, 2}, {}};
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

}  // namespace
