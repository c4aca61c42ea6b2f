#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "core/engine/engine.h"
#include "tests/perf/allocations.h"
#include "tests/perf/nemotron_layout.h"
#include "tests/perf/timing.h"

namespace engine_perf {

using namespace hyb;
using namespace hyb::perf;

namespace {

constexpr std::int32_t sequences = 256;
constexpr std::int32_t length = 32 * 1024;

Capacity capacity_of() {
  return {.memory = nemotron_layout(sequences * (length / 16 / 512 + 1) + 600),
          .step_tokens = 16384,
          .sequences_max = sequences,
          .vocab = 130000};
}

/// Draws the same token everywhere. What it takes itself, it writes down.
class NullRunner : public Runner {
 public:
  Capacity capacity() const override { return capacity_of(); }
  StepResult run(const Step& step) override {
    const std::int64_t before = allocations();
    StepResult result;
    ns = nanoseconds([&] {
      std::size_t rows = 0;
      for (const Span& span : step.spans) rows += span.samples.size();
      result.sampled.resize(rows);
      orders = step.orders.size();
    });
    taken = allocations() - before;
    return result;
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

  double ns = 0;
  std::int64_t taken = 0;
  std::size_t orders = 0;
};

class Silent : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId, std::int32_t, const Completion&) override {}
};

}  // namespace

TEST_SUITE("perf/engine") {
  TEST_CASE("a decode step of 256 sequences of 32k tokens, but for the model") {
    NullRunner runner;
    Silent sink;
    Engine engine(runner, nullptr,
                  {.length_max = length + 4096, .sequences_max = sequences, .chunk_tokens = 4096});
    std::mt19937 random(1);
    for (std::int32_t i = 0; i < sequences; ++i) {
      Request request;
      request.prompt.resize(length);
      for (TokenId& token : request.prompt) {
        token = TokenId{static_cast<std::int32_t>(random() % 130000)};
      }
      request.max_tokens = 2000;
      engine.submit(std::move(request), sink);
    }
    std::int64_t prefill_steps = 0;
    double prefill_ns = 0;
    do {
      prefill_ns += nanoseconds([&] { engine.step(); }) - runner.ns;
      ++prefill_steps;
    } while (engine.running() < sequences || engine.usage().prefixes.published < sequences);
    for (int i = 0; i < 100; ++i) engine.step();

    std::vector<double> samples;
    samples.reserve(1000);
    std::int64_t steps_with_allocations = 0, most = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::int64_t before = allocations();
      samples.push_back(nanoseconds([&] { engine.step(); }) - runner.ns);
      const std::int64_t taken = allocations() - before - runner.taken;
      steps_with_allocations += taken > 0 ? 1 : 0;
      most = std::max(most, taken);
    }
    // All sequences have one length, so every 16th step takes a page for each of them.
    std::sort(samples.begin(), samples.end());
    const std::vector<double> with_pages(samples.end() - 1000 / 16, samples.end());
    report("prefill step of 16k tokens in chunks of 4k: engine, mean",
           prefill_ns / static_cast<double>(prefill_steps) / 1000, "us");
    report("decode step, 256 sequences at 32k tokens: engine, median", median(samples) / 1000,
           "us");
    report("  one in which each takes a page: engine, median", median(with_pages) / 1000, "us");
    report("  steps of 1000 that allocate", static_cast<double>(steps_with_allocations), "");
    report("  most allocations in one of them", static_cast<double>(most), "");
    CHECK(engine.running() == sequences);
  }
}

}  // namespace engine_perf
