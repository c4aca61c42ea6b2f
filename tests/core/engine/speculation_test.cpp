#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/engine/scheduler.h"
#include "core/engine/speculation.h"
#include "core/memory/pool/layout.h"

namespace speculation_test {

using namespace hyb;

namespace {

/// Guesses as much as it may, and notes how much that was.
class SlowDrafter final : public Drafter {
 public:
  bool takes_time() const override { return true; }
  void prepare(std::span<const DraftJob>) override { now += std::exchange(preparing, {}); }
  void draft(std::span<DraftJob> jobs) override {
    now += drafting;
    for (DraftJob& job : jobs) {
      guessed += job.most;
      job.drafts.assign(static_cast<std::size_t>(job.most), TokenId{1});
    }
  }
  bool may_draft_after_next(const ArrivalOrder&, std::span<const TokenId>) override { return true; }
  void forget(const ArrivalOrder&) override {}

  std::int32_t guessed = 0;
  std::chrono::steady_clock::time_point now;
  std::chrono::seconds preparing{0}, drafting{0};
};

/// One sequence whose every step is a second and may have drafts, none of which is right. Beside
/// that there is what the host does.
class Fixture {
 public:
  Fixture(std::int32_t pages, std::int32_t drafts)
      : pool_(flat_layout({.pages = pages, .slots = 0, .page_tokens = 4})),
        prefixes_(pool_, {.enabled = false}),
        scheduler_(pool_, prefixes_,
                   {.sequences_max = 1, .chunk_tokens = 16, .step_tokens = 16, .step_samples = 16}),
        speculation_({.is_on = true, .draft_steps = drafts, .drafter = &drafter}, prefixes_,
                     scheduler_.step_plan(), [this] { return drafter.now; }, {}) {
    terms_.id = RequestId{1};
    terms_.request.prompt = std::vector<TokenId>(4, TokenId{2});
    terms_.request.max_tokens = 1000;
    terms_.length_max = 10'000;
    terms_.tokenizer = nullptr;
    sequence_ = std::make_unique<Sequence>(terms_, 0);
    scheduler_.add(std::vector<Sequence*>{sequence_.get()});
  }

  /// How many drafts the step has.
  std::int32_t step() {
    const auto planned = drafter.now;
    const std::span<const Assignment> plan = scheduler_.plan();
    REQUIRE(plan.size() == 1);
    speculation_.add_drafts(plan, planned);
    const Assignment entry = plan.front();
    const auto launched = drafter.now;
    drafter.now += std::chrono::seconds(1);
    Span span;
    sequence_->fill(span, entry.tokens);
    if (entry.drafts > 0) {
      speculation_.verified(entry, 0, false);
      drafter.now += applying;
    }
    if (ends && entry.drafts > 0) {
      speculation_.forget(*sequence_);
      drafter.now += std::chrono::seconds(100);
    }
    speculation_.ran(plan, {.launched = launched, .end = drafter.now, .entry_seconds = 0});
    sequence_->ran(entry.tokens, Clock::now());
    scheduler_.ran(*sequence_);
    sequence_->accept({.token = TokenId{3}, .top = {}}, Clock::now());
    return entry.drafts;
  }

  void forget() { speculation_.forget(*sequence_); }

  SlowDrafter drafter;
  std::chrono::seconds applying{0};  ///< of what drafts came to
  bool ends = false;                 ///< in each step with drafts a sequence does, which takes long

 private:
  MemoryPool pool_;
  PrefixCache prefixes_;
  Scheduler scheduler_;
  Speculation speculation_;
  RequestTerms terms_;
  std::unique_ptr<Sequence> sequence_;
};

}  // namespace

TEST_SUITE("core/engine/speculation") {
  TEST_CASE("what takes time to guess is guessed where there is memory for it alone") {
    Fixture fixture(3, 7);
    std::vector<std::int32_t> drafts;
    for (int i = 0; i < 9; ++i) {
      const std::int32_t before = fixture.drafter.guessed;
      drafts.push_back(fixture.step());
      CHECK(fixture.drafter.guessed - before == drafts.back());
    }
    CHECK(drafts == std::vector<std::int32_t>{0, 7, 5, 5, 3, 3, 1, 1, 0});  // 12 tokens in all
  }

  TEST_CASE("the time of preparing a sequence is lost if its drafts have not saved it") {
    const auto guessed_later = [](std::chrono::seconds preparing) {
      Fixture fixture(400, 0);
      fixture.drafter.preparing = preparing;
      for (int i = 0; i < 20; ++i) fixture.step();
      CHECK(fixture.drafter.guessed > 0);
      fixture.forget();
      const std::int32_t before = fixture.drafter.guessed;
      for (int i = 0; i < 200; ++i) fixture.step();
      return fixture.drafter.guessed - before;
    };
    CHECK(guessed_later(std::chrono::seconds(0)) > 0);
    CHECK(guessed_later(std::chrono::seconds(10)) == 0);
  }

  TEST_CASE("drafts are charged with the host's work on them, not with ends of sequences") {
    const auto guessed = [](const auto& set) {
      Fixture fixture(400, 0);
      set(fixture);
      for (int i = 0; i < 400; ++i) fixture.step();
      return fixture.drafter.guessed;
    };
    const std::int32_t free = guessed([](Fixture&) {});
    CHECK(free > 10);
    CHECK(guessed([](Fixture& fixture) { fixture.applying = std::chrono::seconds(4); }) == 1);
    CHECK(guessed([](Fixture& fixture) { fixture.drafter.drafting = std::chrono::seconds(4); }) ==
          1);
    CHECK(guessed([](Fixture& fixture) { fixture.ends = true; }) >= free);
  }
}

}  // namespace speculation_test
