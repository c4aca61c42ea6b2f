#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/base/error.h"
#include "models/steps.h"
#include "tests/models/chained.h"

namespace steps_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

/// Of Mamba-2 (also beside attention), of gated delta nets, of short convolutions, of Mamba-1.
const char* const fixture_names[] = {
    "granite-moe-nope",  "bamba-1",     "falcon-h1-norm", "qwen3_5-dense",
    "qwen3-next",        "lfm2-dense",  "lfm3",           "jamba",
    "olmo-hybrid",       "kimi-linear", "minimax",        "bailing-delta",
    "bailing-lightning", "zamba2"};

ChainBench bench_of(const char* name, DType activation, int threads, kernels::Isa isa) {
  return ChainBench(
      [&](kernels::Queue& queue) {
        TensorFiles files(golden_folder / name);
        return load_model(queue, Config::from_folder(golden_folder / name), files,
                          {.load = {.activation = activation}});
      },
      kernels::Device::cpu, {.threads = threads, .isa = isa});
}

}  // namespace

TEST_SUITE("models/step_chains") {
  TEST_CASE("a chain in one step leaves the logits and slots of a step for each of its spans") {
    for (const char* const name : fixture_names) {
      for (const kernels::Isa isa : levels()) {
        for (const DType activation : {DType::bf16, DType::f32}) {
          CAPTURE(name);
          CAPTURE(static_cast<int>(isa));
          ChainBench apart = bench_of(name, activation, 1, isa),
                     at_once = bench_of(name, activation, 3, isa);
          for (const std::vector<CutSequence>& step : chained_steps()) {
            CHECK(run_at_once(at_once, step) == run_apart(apart, step));
          }
        }
      }
    }
  }

  TEST_CASE("a step with a chain is none of decode, and where there is none nothing has changed") {
    ChainBench bench = bench_of("granite-moe-nope", DType::bf16, 1, kernels::Isa::plain);
    Step step;
    step.spans = {bench.span({0, {4, 5}}, 0), bench.span({1, {4, 5}}, 0)};
    CHECK(!has_chain(step));
    CHECK(is_decode(step));
    step.spans.push_back(bench.span({1, {4, 5, 6}}, 1));
    CHECK(has_chain(step));
    CHECK(!is_decode(step));
    CHECK(!continues(step.spans[0], step.spans[1]));
    CHECK(continues(step.spans[1], step.spans[2]));
    // Spans without slots, as of models without recurrent state.
    for (Span& span : step.spans) span.read_slot = span.write_slot = no_slot;
    CHECK(has_chain(step));
    step.spans.pop_back();
    CHECK(!has_chain(step));
  }

  TEST_CASE("a broken chain is refused before anything runs") {
    ChainBench bench = bench_of("granite-moe-nope", DType::bf16, 1, kernels::Isa::plain);
    const std::vector<Span> good = bench.spans({0, {0, 5, 9, 12}});
    const auto refused = [&](std::vector<Span> spans) { CHECK_THROWS_AS(bench.run(spans), Error); };
    std::vector<Span> spans = good;
    spans[1].position = 6;
    refused(spans);
    spans = good;
    std::swap(spans[1], spans[2]);  // a span reads what a later one writes
    refused(spans);
    spans = good;
    spans.insert(spans.begin() + 1, bench.span({1, {0, 3}}, 0));  // a neighbour in between
    refused(spans);
    spans = good;
    spans[2].write_slot = spans[0].write_slot;
    refused(spans);
    spans = good;
    spans[1].tables = bench.span({1, {0, 9}}, 0).tables;
    refused(spans);
    CHECK(bench.run(good).size() == 12 * static_cast<std::size_t>(bench.model.plan.vocab));
  }
}

TEST_SUITE("models/step_sizes") {
  TEST_CASE("verify steps have few sizes, which are no smaller and by less than a row a sequence") {
    const StepSizes limits = {.tokens = 4096, .spans = 64, .samples = 256};
    constexpr std::int64_t most = 1 + drafts_max;
    std::set<std::array<std::int64_t, 3>> sizes;
    std::set<std::int64_t> spans;
    for (std::int64_t count = 1; count <= limits.spans; ++count) {
      for (std::int64_t tokens = count; tokens <= most * count; ++tokens) {
        const StepSizes step = {
            .tokens = tokens, .spans = count, .samples = std::min(tokens, limits.samples)};
        const StepSizes padded = StepGraphs::padded_verify(step, limits);
        CHECK(padded.tokens >= step.tokens);
        CHECK(padded.spans >= step.spans);
        CHECK(padded.samples >= step.samples);
        CHECK(padded.samples <= limits.samples);
        CHECK(padded.tokens < step.tokens + padded.spans);
        sizes.insert({padded.tokens, padded.spans, padded.samples});
        spans.insert(padded.spans);
      }
    }
    CHECK(spans == std::set<std::int64_t>{1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64});
    CHECK(sizes.size() <= static_cast<std::size_t>(most) * spans.size());
    // As many drafts of each sequence, where there are 1, 2, 4 or more in eights: no padding.
    for (const std::int64_t count : {1, 2, 4, 8, 24}) {
      const StepSizes exact = {.tokens = 4 * count, .spans = count, .samples = 4 * count};
      CHECK(StepGraphs::padded_verify(exact, limits) == exact);
    }
  }

  TEST_CASE("a verify step has one token and its drafts of every sequence") {
    ChainBench bench = bench_of("granite-moe-nope", DType::bf16, 1, kernels::Isa::plain);
    Step step;
    step.spans = {bench.span({0, {4, 5}}, 0), bench.span({1, {4, 8}}, 0)};
    CHECK(!is_verify(step));  // the second one is a piece of a prompt
    step.spans[1].drafts = 3;
    step.spans[1].ring = RingId{0};
    CHECK(is_verify(step));
    CHECK(!is_decode(step));
    step.spans[1].drafts = 2;
    CHECK(!is_verify(step));
    step.spans.pop_back();
    CHECK(!is_verify(step));
    CHECK(is_decode(step));
    step.spans[0].ring = RingId{0};
    CHECK(is_decode(step));
    step.spans[0].ring_entries = 2;
    CHECK(is_verify(step));
  }
}

}  // namespace steps_test
