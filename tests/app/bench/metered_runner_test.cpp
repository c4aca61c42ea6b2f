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
    return {.memory = {}, .step_tokens = 1, .sequences_max = 1, .vocab = 16};
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

  TEST_CASE("of a step: its time, spans, tokens, and superblocks that got an owner") {
    const models::Plan plan = testing::plan_of("qwen3.5-0.8b");
    DraftingRunner runner;
    MeteredRunner metered(runner, {plan, models::geometry_of(plan)});
    Step step;
    step.spans.resize(2);
    const std::vector<TokenId> tokens(5);
    step.spans[0].tokens = tokens;
    step.spans[1].tokens = std::span(tokens).first(1);
    step.orders = {ChangeOwner{SuperblockId{0}, no_view, ViewId{1}},
                   ChangeOwner{SuperblockId{1}, ViewId{0}, ViewId{1}},
                   ChangeOwner{SuperblockId{2}, ViewId{0}, no_view}, UnitCopy{ViewId{0}, 1, 2}};
    metered.run(step);
    step.spans.clear();
    metered.run(step);
    const StepTotals totals = metered.take_totals();
    REQUIRE(totals.steps.size() == 1);
    CHECK(totals.steps[0].spans == 2);
    CHECK(totals.steps[0].tokens == 6);
    CHECK(totals.steps[0].flips == 2);
    CHECK(totals.steps[0].work.bytes == totals.work.bytes);
    CHECK(totals.work.flops > 0);
    CHECK(totals.steps[0].seconds >= 0);
  }
}

}  // namespace metered_runner_test
