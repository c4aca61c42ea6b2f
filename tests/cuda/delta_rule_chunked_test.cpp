#include <doctest/doctest.h>

#include <set>

#include "kernels/cuda/routes.h"
#include "kernels/ops/delta_rule_chunks.h"
#include "kernels/ops/delta_rule_cuda.h"
#include "tests/cuda/delta_rule_case.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType f32 = DType::f32, b16 = DType::bf16;

/// As much as the case can use.
Workspace workspace_of(const DeltaCase& c, std::int64_t spare_tokens = 0) {
  return Workspace(delta_rule_workspace_bytes(Device::cuda, c.begins.back() + spare_tokens,
                                              static_cast<std::int64_t>(c.read.size()) + 2,
                                              c.value_heads));
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
  const Workspace workspace = workspace_of(c, before.s.tokens - c.begins.back());
  const auto route = [&](cuda::Stream& stream, DeltaRule op) {
    op.workspace = workspace.view();
    REQUIRE(cuda::delta_rule_chunked_takes(op));
    cuda::delta_rule_chunked(stream, op);
  };
  const RecurrentAnswer answer = run_route(route, c, before, replayed, spare_spans);
  const double scale = std::max(largest(before.x), largest(before.state));
  check_within(answer.y, in.y, y_bound * scale, 0x1p-8);
  check_within(answer.state, in.state, state_bound * scale, c.state == b16 ? 0x1p-8 : 1e-6);
  check_untouched(c, before, answer);
}

const DeltaCase cases[] = {
    {1, 2, 64, 32, b16, f32, {0, 130, 131, 151}, {0, -1, 3}, {0, 4, 2}, {8, 8}},
    {1, 1, 128, 64, b16, b16, {0, 65, 129}, {4, -1}, {4, 2}, {}},
    {2, 2, 64, 96, b16, f32, {0, 48}, {-1}, {5}, {}},
    {1, 1, 128, 32, b16, f32, {0, 17}, {1}, {2}, {}},
    {1, 1, 64, 32, b16, f32, {0, 63, 127, 191, 192}, {0, 1, 2, 3}, {0, 1, 2, 3}, {}},
};

TEST_SUITE("cuda/delta_rule_chunked") {
  TEST_CASE("is within its bounds of the plain loop; only the named slots change") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DeltaCase& c : cases) check_inputs(c, c.inputs(70));
      check_inputs(cases[0], cases[0].inputs(), true);
    });
  }

  TEST_CASE("a span without others goes in chunks, however short") {
    for (const std::int32_t tokens : {1, 15, 64}) {
      const DeltaCase c = {1, 1, 64, 32, b16, f32, {0, tokens}, {1}, {2}, {}};
      check_inputs(c, c.inputs(70), false, 0);
    }
  }

  TEST_CASE("short spans beside a long one have the bits of the scan") {
    const DeltaCase c = {1, 1, 64, 32, b16, b16, {0, 16, 17, 87, 90}, {0, 1, 2, 3}, {0, 1, 2, 3},
                         {}};
    const Workspace workspace = workspace_of(c);
    const RecurrentAnswer scan = run_route(
        [](cuda::Stream& stream, const DeltaRule& op) { cuda::delta_rule_scan(stream, op); }, c,
        c.inputs());
    const RecurrentAnswer mixed = run_route(
        [&](cuda::Stream& stream, DeltaRule op) {
          op.workspace = workspace.view();
          cuda::delta_rule_chunked(stream, op);
        },
        c, c.inputs());
    const std::int64_t inner = 32, size = 64 * 32;
    for (std::int64_t i = 0; i < mixed.y.size(); ++i) {
      if (i / inner < 17 || i / inner >= 87) CHECK(mixed.y.get(i) == scan.y.get(i));
    }
    for (std::int64_t i = 0; i < 4 * size; ++i) {
      if (i / size != 2) CHECK(mixed.state.get(i) == scan.state.get(i));
    }
    CHECK(!same_bytes(mixed.y, scan.y));
  }

  TEST_CASE(
      "a chain goes in chunks, or by the scan where all of it is short; cuts are spans' ends") {
    const auto chunked = [](const Workspace& workspace) {
      return [&](cuda::Stream& stream, DeltaRule op) {
        op.workspace = workspace.view();
        cuda::delta_rule_chunked(stream, op);
      };
    };
    const auto scan = [](cuda::Stream& stream, const DeltaRule& op) {
      cuda::delta_rule_scan(stream, op);
    };
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const DeltaCase& shape : {cases[0], cases[1]}) {
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
    const DeltaCase shape = {1, 1, 64, 32, b16, b16, {}, {}, {}, {}};
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
    const DeltaCase c = {1, 1, 64, 32, b16, f32, {0, 100}, {1}, {2}, {}};
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

  TEST_CASE("one key again and again, keys of zeros, of huge and of tiny numbers") {
    const DeltaCase c = {1, 1, 64, 32, b16, f32, {0, 130}, {1}, {2}, {}};
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
      const auto route = [&](cuda::Stream& stream, DeltaRule op) {
        op.workspace = workspace.view();
        cuda::delta_rule_chunked(stream, op);
      };
      const RecurrentAnswer answer = run_route(route, c, in);
      values = std::max(values, largest(in.state));
      check_within(answer.y, plain.y, y_bound * values, 0x1p-8);
      check_within(answer.state, plain.state, state_bound * values, 1e-6);
    }
  }

  TEST_CASE("the same call gives the same bits, beside any other span") {
    const DeltaCase alone = {1, 1, 64, 32, b16, f32, {0, 90}, {2}, {2}, {}};
    DeltaCase beside = alone;
    beside.begins = {0, 90, 180};
    beside.read = {2, 0};
    beside.write = {2, 0};
    const auto answer = [](const DeltaCase& c) {
      const Workspace workspace = workspace_of(c);
      return run_route(
          [&](cuda::Stream& stream, DeltaRule op) {
            op.workspace = workspace.view();
            cuda::delta_rule_chunked(stream, op);
          },
          c, c.inputs());
    };
    const RecurrentAnswer first = answer(alone), second = answer(alone), third = answer(beside);
    CHECK(same_bytes(first.y, second.y));
    CHECK(same_bytes(first.state, second.state));
    for (std::int64_t i = 0; i < first.y.size(); ++i) CHECK(first.y.get(i) == third.y.get(i));
  }

  TEST_CASE("delta_rule: token by token where the stream is batch-invariant, or spans are short") {
    const DeltaCase one = {1, 1, 64, 32, b16, f32, {0, 70}, {2}, {2}, {}};
    const DeltaCase many = {1, 1, 64, 32, b16, f32, {0, 12, 24, 25, 34}, {0, 1, 2, 3}, {0, 1, 2, 3},
                            {}};
    enum class Route { scan, chunked, dispatched, invariant, without_workspace };
    const auto answer = [](const DeltaCase& c, Route wanted) {
      const Workspace workspace = workspace_of(c);
      const auto route = [&](cuda::Stream& stream, DeltaRule op) {
        if (wanted != Route::without_workspace) op.workspace = workspace.view();
        stream.set_batch_invariant(wanted == Route::invariant);
        if (wanted == Route::scan) return cuda::delta_rule_scan(stream, op);
        if (wanted == Route::chunked) return cuda::delta_rule_chunked(stream, op);
        cuda::delta_rule(stream, op);
      };
      return run_route(route, c, c.inputs()).y.packed();
    };
    CHECK(answer(one, Route::dispatched) == answer(one, Route::chunked));
    CHECK(answer(one, Route::scan) != answer(one, Route::chunked));
    CHECK(answer(one, Route::invariant) == answer(one, Route::scan));
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
