#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "app/bench/metered_runner.h"
#include "tests/support/plans.h"

namespace metered_runner_test {

using namespace hyb;
using namespace hyb::app;
using namespace std::chrono_literals;

namespace {

/// Drafts take 5 ms, all else no time.
class DraftingRunner final : public Runner {
 public:
  Capacity capacity() const override {
    return {.memory = {}, .step_tokens = 1, .step_rows = 1, .vocab = 16};
  }
  StepResult run(const Step&) override { return {}; }
  bool can_draft() const override { return true; }
  std::vector<std::vector<SampledToken>> draft(const Step&) override {
    std::this_thread::sleep_for(5ms);
    return {{SampledToken{.token = TokenId{7}, .finite = true, .top = {}}}};
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}
};

}  // namespace

TEST_SUITE("app/bench/metered_runner") {
  TEST_CASE("the model's drafts are passed on; their time is the model's, their work no step's") {
    const models::Plan plan = testing::plan_of("qwen3.5-0.8b");
    DraftingRunner runner;
    MeteredRunner metered(runner, {plan, models::geometry_of(plan)});
    CHECK(metered.can_draft());
    CHECK(metered.draft({}).at(0).at(0).token == TokenId{7});
    const StepTotals totals = metered.take_totals();
    CHECK(totals.inside >= 5ms);
    CHECK(totals.steps.empty());
    CHECK(metered.take_totals().inside == 0ns);
  }
}

}  // namespace metered_runner_test
