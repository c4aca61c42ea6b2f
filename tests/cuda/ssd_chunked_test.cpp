#include <doctest/doctest.h>

#include "kernels/cuda/routes.h"
#include "kernels/ops/ssd_cuda.h"
#include "kernels/ops/ssd_segments.h"
#include "tests/cuda/ssd_case.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

constexpr DType f32 = DType::f32, b16 = DType::bf16;

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

/// What roundings of a bf16 state where a span ends and another goes on may add, in terms of reach.
double cut_bound(const SsdCase& c) {
  double bound = 0;
  for (std::size_t r = 1; c.state == b16 && r < c.read.size(); ++r) {
    if (c.read[r] == c.write[r - 1]) bound += 0x1p-8;
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
  const auto route = [&](cuda::Stream& stream, Ssd op) {
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

const SsdCase cases[] = {
    {2, 32, 64, 1, b16, f32, {0, 130, 131, 151}, {0, -1, 3}, {0, 4, 2}, {8, 8}},
    {2, 64, 128, 1, b16, b16, {0, 65, 129}, {4, -1}, {4, 2}, {}},
    {2, 80, 64, 2, b16, f32, {0, 70}, {-1}, {5}, {}},
    {1, 128, 64, 1, b16, f32, {0, 33}, {1}, {2}, {}},
    {1, 32, 256, 1, b16, f32, {0, 66}, {1}, {1}, {}},
    {1, 80, 128, 1, b16, b16, {0, 64}, {0}, {0}, {}},
    {1, 80, 256, 1, b16, f32, {0, 17}, {0}, {0}, {}},
};

TEST_SUITE("cuda/ssd_chunked") {
  TEST_CASE("is within its bounds of the plain loop; only the named slots change") {
    in_every_schedule([&](const std::string& schedule) {
      CAPTURE(schedule);
      for (const SsdCase& c : cases) check_case(c, Steps::usual, false, false);
    });
  }

  TEST_CASE("steps that keep all of the state, or nothing, or either in turn") {
    for (const Steps steps : {Steps::none, Steps::large, Steps::mixed}) {
      SsdCase c = cases[0];
      c.dt_max = 1000.0F;
      check_case(c, steps, false, true);
    }
  }

  TEST_CASE("segments: within the same bounds, from slots and from zeros") {
    const SsdCase c = {2, 32, 64, 1, b16, f32, {0, 641, 900, 904}, {2, -1, 4}, {2, 1, 5}, {}};
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
      for (const SsdCase& c : cases) {
        check_chain(cuda::ssd_chunked, c.with(chained({0, 63, 64, 129}, false, true)));
      }
      check_chain(cuda::ssd_chunked, cases[0].with(chained({0, 64, 65, 66, 200}, true, false)),
                  true);
    });
  }

  TEST_CASE("segments of chains: within the same bounds, at every cut") {
    const SsdCase shape = {2, 32, 64, 1, b16, f32, {}, {}, {}, {}};
    const SsdCase chains[] = {shape.with(chained({0, 600, 601}, true, false)),
                              shape.with(chained({0, 5, 300, 812, 813, 900}, false, true)),
                              shape.with({{0, 256, 512, 700}, {1, 2, -1}, {2, 3, 4}})};
    for (const SsdCase& c : chains) {
      const auto spans = static_cast<std::int64_t>(c.read.size()) + 2;
      CHECK(ssd_segments(c.begins.back() + 5, spans, c.heads, c.rows, c.columns).tokens == 256);
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
    const SsdCase c = {2, 32, 64, 1, b16, f32, {0, 600}, {2}, {2}, {}};
    const SsdInputs in(c);
    const Workspace workspace = workspace_of(c);
    const auto route = [&](cuda::Stream& stream, Ssd op) {
      op.workspace = workspace.view();
      cuda::ssd_chunked(stream, op);
    };
    const RecurrentAnswer first = run_route(route, c, in), second = run_route(route, c, in);
    CHECK(same_bytes(first.y, second.y));
    CHECK(same_bytes(first.state, second.state));
  }

  TEST_CASE("ssd: token by token where the stream is batch-invariant or spans are short") {
    const SsdCase one = {2, 32, 64, 1, b16, f32, {0, 70}, {2}, {2}, {}};
    SsdCase many = {2, 32, 64, 1, b16, f32, {0, 2, 4, 5, 6}, {0, 1, 2, 3}, {0, 1, 2, 3}, {}};
    const auto invariant = [](cuda::Stream& stream, const Ssd& op) {
      stream.set_batch_invariant(true);
      cuda::ssd(stream, op);
    };
    const auto answers = [](const SsdRoute& route, const SsdCase& c) {
      return run_route(route, c, SsdInputs(c)).y.packed();
    };
    CHECK(answers(cuda::ssd, one) == answers(cuda::ssd_chunked, one));
    CHECK(answers(invariant, one) == answers(cuda::ssd_scan, one));
    CHECK(answers(cuda::ssd, one) != answers(invariant, one));
    CHECK(answers(cuda::ssd, many) == answers(cuda::ssd_scan, many));
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
