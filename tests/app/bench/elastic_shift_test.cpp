#include "app/bench/elastic_shift.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/bench/load_driver.h"
#include "app/bench/metered_runner.h"
#include "app/bench/workload.h"
#include "core/base/error.h"
#include "core/engine/engine.h"
#include "models/memory_layout.h"
#include "tests/app/bench/clock_runner.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace elastic_shift_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

const FullAttention full;

/// A superblock is 200 pages of 16 tokens, or 2 slots.
MemoryLayout layout_of(std::int32_t superblocks) {
  return {.page_tokens = 16,
          .groups = {{.kind = &full, .page_bytes = 10, .pages_per_superblock = 200}},
          .slots = {.bytes = 1000, .per_superblock = 2},
          .packed = {},
          .superblock_bytes = 2000,
          .superblocks = superblocks,
          .fixed_superblocks = {}};
}

constexpr ShiftLimits limits = {.state_share_max = 0.9, .length_max = 100'000, .sequences_max = 64};

/// A run of a phase that answers `tokens` tokens in `seconds`.
Repetition run_of(double seconds, std::int64_t tokens, std::vector<MeteredStep> steps) {
  Repetition one;
  RequestRecord record;
  record.token_s = {seconds / 2, seconds};
  record.ended_s = seconds;
  record.prompt_tokens = static_cast<std::int32_t>(tokens) - 2;
  one.records = {record};
  one.steps.steps = std::move(steps);
  one.metrics = metrics_of(one.records, seconds, {.percentages = {}, .goals = {}});
  return one;
}

MeteredStep step_of(double ms, std::int32_t spans, std::int32_t flips, double bytes) {
  return {.work = {.bytes = bytes, .flops = 0},
          .seconds = ms / 1000,
          .spans = spans,
          .tokens = spans,
          .flips = flips};
}

ShiftSetting setting_of(std::optional<double> share, Repetition longs, Repetition shorts) {
  ShiftSetting setting = {.state_share = share, .phases = {}};
  setting.phases[0].row.repetitions = {std::move(longs)};
  setting.phases[1].row.repetitions = {std::move(shorts)};
  setting.phases[0].running = 6;
  return setting;
}

/// A model's shape on a device that takes the least time for every step, by a fake clock.
struct IdealDevice {
  explicit IdealDevice(const std::string& preset)
      : plan(plan_of(preset)),
        geometry(models::geometry_of(plan)),
        memory(models::memory_layout_of(
            geometry, {.pool_bytes = shift_memory_states * geometry.slot_bytes, .flat = {}})),
        shift(elastic_shift(
            memory.layout, {.state_share_max = 0.9, .length_max = 100'000, .sequences_max = 256})) {
  }

  /// What all phases of an engine with this share come to.
  ShiftSetting run(std::optional<double> share) const;

  models::Plan plan;
  models::Geometry geometry;
  models::ModelMemoryLayout memory;
  ElasticShift shift;
  Ceilings ceilings = {.bytes_per_s = 2e12, .flops_per_s = 4e14};
};

class IdealRunner final : public Runner {
 public:
  IdealRunner(const IdealDevice& device, FakeTimer& timer)
      : device_(device), timer_(timer), roofline_(device.plan, device.geometry) {}

  Capacity capacity() const override {
    return {
        .memory = device_.memory.layout, .step_tokens = 2048, .sequences_max = 256, .vocab = 16};
  }
  StepResult run(const Step& step) override {
    StepResult result;
    std::vector<models::StepShape> shapes;
    for (const Span& span : step.spans) {
      result.sampled.resize(result.sampled.size() + span.samples.size());
      shapes.push_back({.sequences = 1,
                        .tokens = std::ssize(span.tokens),
                        .position = span.position,
                        .rows = std::ssize(span.samples)});
    }
    if (shapes.empty()) return result;
    const models::Work work = roofline_.step(shapes);
    const double seconds = std::max(work.bytes / device_.ceilings.bytes_per_s,
                                    work.flops / device_.ceilings.flops_per_s);
    timer_.advance(std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * seconds)));
    return result;
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

 private:
  const IdealDevice& device_;
  FakeTimer& timer_;
  models::Roofline roofline_;
};

ShiftSetting IdealDevice::run(std::optional<double> share) const {
  FakeTimer timer;
  IdealRunner ideal(*this, timer);
  MeteredRunner runner(ideal, {plan, geometry});
  Engine engine(runner, nullptr,
                {.length_max = 100'000,
                 .sequences_max = 256,
                 .chunk_tokens = 2048,
                 .prefixes = {.enabled = false},
                 .now = [&] { return timer.now(); },
                 .state_share = share});
  PromptMaterial material = {.vocab = 16, .terms = {}, .corpus = {}, .text = {}, .from_file = {}};
  material.terms.ignore_eos = true;
  ShiftSetting setting = {.state_share = share, .phases = {}};
  for (std::int32_t round = 0; round < ElasticShift::rounds; ++round) {
    for (std::size_t i = 0; i < shift.phases.size(); ++i) {
      const std::int64_t preempted = engine.usage().preemptions;
      const std::vector<WorkItem> work =
          work_of(case_of(shift.phases[i]), material, {1, i, static_cast<std::uint64_t>(round)});
      ListedRequests source(work);
      LoadResult result = run_load(engine, source, timer, {});
      Repetition one;
      one.metrics = metrics_of(result.records, result.duration_s, {.percentages = {}, .goals = {}});
      one.records = std::move(result.records);
      one.steps = runner.take_totals();
      one.events.preemptions = engine.usage().preemptions - preempted;
      CHECK(one.metrics.failed == 0);
      setting.phases[i].row.repetitions.push_back(std::move(one));
    }
  }
  CHECK((engine.usage().pool.owner_changes > 0) == !share.has_value());
  return setting;
}

}  // namespace

TEST_SUITE("app/bench/elastic_shift") {
  TEST_CASE("elastic memory is as good as the best ratio of a phase, and better than any for all") {
    for (const char* const preset : {"granite-4.0-h-350m", "nemotron-3-nano-30b-a3b"}) {
      CAPTURE(preset);
      const IdealDevice device(preset);
      ShiftComparison comparison = {
          .shift = device.shift, .ceilings = device.ceilings, .settings = {device.run({})}};
      for (const double share : {0.2, 0.5, 0.8}) {
        comparison.settings.push_back(device.run(share));
      }
      const auto rate = [&](const ShiftSetting& setting, std::string_view phase) {
        ShiftComparison one = comparison;
        one.settings = {setting};
        for (const Json& row : shift_rows(one)) {
          if (row["phase"] == phase) return row["total_token_throughput"].get<double>();
        }
        return 0.0;
      };
      for (std::size_t i = 1; i < comparison.settings.size(); ++i) {
        CAPTURE(comparison.settings[i].name());
        const auto ratio = [&](std::string_view phase) {
          return rate(comparison.settings[0], phase) / rate(comparison.settings[i], phase);
        };
        CHECK(ratio("long") > 0.97);
        CHECK(ratio("short") > 0.97);
        CHECK(ratio("all") > 1.2);
      }
    }
  }

  TEST_CASE("long sequences fill memory with pages, short ones with states, and all shares fit") {
    // 4 states are 2 superblocks of pages, 6400 tokens, which a tenth of 20 superblocks holds.
    const ElasticShift shift = elastic_shift(layout_of(20), limits);
    const ShiftPhase &longs = shift.phases[0], &shorts = shift.phases[1];
    CHECK(longs.prompt_tokens + longs.answer_tokens == 6400);
    CHECK(longs.prompt_tokens == 5600);
    // 8 take 16 superblocks for pages, and 5 for 9 slots are too many: 7.
    CHECK(longs.requests == 2 * 7);
    CHECK(shorts.prompt_tokens == 64);
    CHECK(shorts.answer_tokens == 32);
    CHECK(shorts.requests == 14 * 6400 / 96);
    CHECK(elastic_shift(layout_of(10), limits).phases[0].prompt_tokens == 3200 / 8 * 7);
    ShiftLimits other = limits;
    other.scale_down = 4;
    CHECK(elastic_shift(layout_of(20), other).phases[0].prompt_tokens == 1600 / 8 * 7);
    other.sequences_max = 3;
    CHECK(elastic_shift(layout_of(20), other).phases[0].requests == 6);
    CHECK(elastic_shift(layout_of(20), other).phases[1].requests == 6 * 1600 / 96);
    other.scale_down = 100;
    CHECK(contains(error_text([&] { elastic_shift(layout_of(20), other); }),
                   "give a smaller --scale-down"));
    other = limits;
    other.length_max = 300;
    CHECK(contains(error_text([&] { elastic_shift(layout_of(20), other); }),
                   "give more --pool-memory or --context"));
  }

  TEST_CASE("shares are numbers between 0 and 1") {
    CHECK(parse_shares(std::vector<std::string>{"0.1", "0.95"}) == std::vector{0.1, 0.95});
    for (const char* const text : {"0", "1", "-0.1", "1.5", "nan", "half", "0.5x", ""}) {
      CAPTURE(text);
      CHECK(contains(error_text([&] { parse_shares(std::vector<std::string>{text}); }),
                     "--state-share: '"));
    }
  }

  TEST_CASE("elastic memory is compared with the best ratio of each phase, and of all") {
    ShiftComparison comparison = {.shift = elastic_shift(layout_of(20), limits),
                                  .ceilings = {.bytes_per_s = 100},
                                  .settings = {}};
    comparison.settings = {
        setting_of({}, run_of(2, 100, {step_of(7, 4, 2, 100), step_of(4, 4, 0, 100)}),
                   run_of(4, 100, {step_of(6, 9, 0, 300)})),
        setting_of(0.1, run_of(1, 100, {step_of(5, 4, 0, 100)}),
                   run_of(9, 100, {step_of(1, 1, 0, 500)})),
        setting_of(0.5, run_of(4, 100, {step_of(6, 4, 0, 400)}),
                   run_of(5, 100, {step_of(1, 1, 0, 400)}))};
    const std::string text = shift_verdict(comparison);
    CHECK(contains(text,
                   "long: 0.50 of the tokens/s of the best ratio, 0.1; by the least time of its "
                   "steps 0.50, 0.1\n"));
    CHECK(contains(text,
                   "short: 1.25 of the tokens/s of the best ratio, 0.5; by the least time of its "
                   "steps 1.33, 0.5\n"));
    CHECK(contains(text,
                   "all: 1.50 of the tokens/s of the best ratio, 0.5; by the least time of its "
                   "steps 1.20, 0.1\n"));
    // Steps alike took 4, 5 and 6 ms.
    const FlipCost cost = flip_cost(comparison, comparison.settings[0]);
    CHECK(cost.steps == 1);
    CHECK(cost.without == 1);
    CHECK(cost.p50_ms == doctest::Approx(2));
    CHECK(cost.other_p99_ms == doctest::Approx(-1));
    const std::vector<Json> rows = shift_rows(comparison);
    REQUIRE(rows.size() == 3 * 3);
    CHECK(rows[0]["memory"] == "elastic");
    CHECK(rows[0]["state_share"].is_null());
    CHECK(rows[0]["mean_running"] == 3);
    CHECK(rows[2]["phase"] == "all");
    CHECK(rows[2]["steps"] == 3);
    CHECK(rows[2]["flip_steps"] == 1);
    CHECK(rows[5]["total_token_throughput"] == doctest::Approx(20));
    CHECK(shift_table(comparison).rows.size() == 9);
  }
}

}  // namespace elastic_shift_test
