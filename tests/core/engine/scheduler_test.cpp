#include "core/engine/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "tests/sim/random.h"

using namespace hyb;

namespace {

/// A scheduler with sequences whose answers are as long as asked, and no model.
class Desk {
 public:
  Desk(const MemoryLayout& memory, const SchedulerLimits& limits)
      : Desk(memory, limits, {.enabled = false}) {}
  Desk(const MemoryLayout& memory, const SchedulerLimits& limits,
       const PrefixCacheOptions& prefixes)
      : pool_(memory), prefixes_(pool_, prefixes), scheduler_(pool_, prefixes_, limits) {}

  Sequence& add(std::int32_t prompt, std::int32_t answer) {
    return add(std::vector<TokenId>(static_cast<std::size_t>(prompt), TokenId{1}), answer);
  }

  Sequence& add(const std::vector<TokenId>& prompt, std::int32_t answer) {
    Client& client = clients_.emplace_back();
    client.terms.id = RequestId{static_cast<std::int64_t>(clients_.size())};
    client.terms.request.prompt = prompt;
    client.terms.request.max_tokens = answer;
    client.terms.length_max = 10'000;
    client.terms.tokenizer = nullptr;
    client.sequence = std::make_unique<Sequence>(client.terms, 0);
    scheduler_.add(std::vector<Sequence*>{client.sequence.get()});
    return *client.sequence;
  }

  std::vector<Assignment> step() {
    const std::span<const Assignment> plan = scheduler_.plan();
    std::vector<Assignment> copy;
    std::vector<Span> spans;
    for (const Assignment& entry : plan) {
      copy.push_back(entry);
      entry.sequence->fill(spans.emplace_back(), entry.tokens, entry.cuts);
    }
    for (std::size_t i = 0; i < copy.size(); ++i) {
      const Assignment& entry = copy[i];
      const bool samples = !spans[i].samples.empty();
      entry.sequence->ran(entry.tokens, Clock::now());
      scheduler_.ran(*entry.sequence);
      if (samples) entry.sequence->accept({.token = TokenId{1}, .top = {}}, Clock::now());
      if (entry.sequence->finished()) scheduler_.retire(*entry.sequence);
    }
    scheduler_.audit();
    return copy;
  }

  Scheduler& scheduler() { return scheduler_; }
  MemoryPool& pool() { return pool_; }
  PrefixCache& prefixes() { return prefixes_; }

 private:
  struct Client {
    RequestTerms terms;
    std::unique_ptr<Sequence> sequence;
  };
  MemoryPool pool_;
  PrefixCache prefixes_;
  std::deque<Client> clients_;
  Scheduler scheduler_;
};

MemoryLayout sizes(std::int32_t pages, std::int32_t slots) {
  return flat_layout({.pages = pages, .slots = slots, .page_tokens = 4});
}

constexpr SchedulerLimits limits = {.sequences_max = 8, .chunk_tokens = 10, .step_tokens = 16};

}  // namespace

TEST_SUITE("core/engine/scheduler") {
  TEST_CASE("single tokens come first, prompts fill up the step in chunks") {
    Desk desk(sizes(100, 8), limits);
    Sequence& first = desk.add(3, 20);
    desk.step();
    Sequence& second = desk.add(50, 20);
    Sequence& third = desk.add(50, 20);
    const std::vector<Assignment> plan = desk.step();
    REQUIRE(plan.size() == 3);
    CHECK(plan[0].sequence == &first);
    CHECK(plan[0].tokens == 1);
    CHECK(plan[1].sequence == &second);
    CHECK(plan[1].tokens == 10);
    CHECK(plan[2].sequence == &third);
    CHECK(plan[2].tokens == 5);
  }

  TEST_CASE("nobody passes an older one that waits") {
    Desk desk(sizes(10, 8), limits);
    desk.add(20, 4);
    desk.step();
    Sequence& large = desk.add(20, 4);
    Sequence& small = desk.add(1, 4);
    bool large_ran = false;
    while (!small.finished()) {
      for (const Assignment& entry : desk.step()) {
        large_ran |= entry.sequence == &large;
        if (entry.sequence == &small) CHECK(large_ran);
      }
    }
  }

  TEST_CASE("a dry pool sends the youngest away and it comes back") {
    Desk desk(sizes(10, 8), limits);
    Sequence& old = desk.add(12, 20);
    Sequence& young = desk.add(12, 20);
    bool was_preempted = false;
    int steps = 0;
    while (!old.finished()) {
      desk.step();
      was_preempted |= old.tokens() > 13 && young.memory().length() == 0;
      REQUIRE(++steps < 100);
    }
    CHECK(was_preempted);
    // The oldest lost no step: two chunks of its prompt, then one token each.
    CHECK(steps == 2 + 19);
    while (!young.finished()) {
      desk.step();
      REQUIRE(++steps < 200);
    }
    CHECK(young.tokens() == 32);
    CHECK(desk.pool().pages_free() == 10);
    CHECK(desk.pool().slots_free() == 8);
  }

  TEST_CASE("an older prompt takes the pages of a younger one that has no turn") {
    // Three that decode eat 12 pages by step 13, the two prompts 3 and 3 of their 5: all are gone
    // when, in step 14, first the older one needs its fourth.
    Desk desk(sizes(18, 8), {.sequences_max = 8, .chunk_tokens = 1, .step_tokens = 16});
    for (int i = 0; i < 3; ++i) desk.add(1, 60);
    desk.step();
    Sequence& older = desk.add(19, 1);
    Sequence& younger = desk.add(19, 1);
    int steps = 1;
    std::int32_t before = 0;
    do {
      before = older.memory().length();
      desk.step();
      REQUIRE(++steps < 30);
    } while (younger.memory().length() > 0);
    CHECK(older.memory().length() == before + 1);
    CHECK(steps == 14);
  }

  TEST_CASE("an endless stream of newcomers delays nobody who was there before") {
    Desk desk(sizes(40, 3), limits);
    Sequence& old = desk.add(30, 30);
    int steps = 0;
    while (!old.finished()) {
      for (int i = 0; i < 5; ++i) desk.add(3, 2);
      desk.step();
      REQUIRE(++steps < 100);
    }
    CHECK(steps == 3 + 29);
  }

  TEST_CASE("a chunk is cut to the room there is, and the prompt still gets through") {
    Desk desk(sizes(5, 2), {.sequences_max = 2, .chunk_tokens = 16, .step_tokens = 16});
    Sequence& only = desk.add(17, 3);
    while (!only.finished()) REQUIRE_FALSE(desk.step().empty());
    CHECK(only.tokens() == 20);
  }

  TEST_CASE("limits of sequences and slots hold") {
    for (const std::int32_t slots : {0, 2, 5}) {
      Desk desk(sizes(100, slots), {.sequences_max = 4, .chunk_tokens = 4, .step_tokens = 16});
      for (int i = 0; i < 9; ++i) desk.add(2, 3);
      std::int32_t most = 0;
      while (!desk.step().empty()) most = std::max(most, desk.scheduler().running());
      CHECK(most <= (slots == 2 ? 2 : 4));
      CHECK(most >= 1);
      CHECK(desk.scheduler().running() == 0);
    }
  }

  TEST_CASE("what is behind a cut runs in the same step") {
    const PrefixCacheOptions prefixes = {.enabled = true};
    const std::vector<TokenId> prompt(40, TokenId{1});
    const auto plan_of = [&](std::int32_t slots, std::int32_t spans) {
      Desk desk(sizes(100, slots),
                {.sequences_max = 1, .chunk_tokens = 50, .step_tokens = 50, .step_spans = spans},
                prefixes);
      desk.add(prompt, 2);
      std::vector<Assignment> plan = desk.step();
      // Either way a snapshot is left before the prompt's last token, if it may have the slot.
      CHECK(desk.prefixes().look_up(prompt).resumable == (slots > 1 ? 39 : 0));
      return plan;
    };
    const std::vector<Assignment> whole = plan_of(4, 2);
    REQUIRE(whole.size() == 2);
    CHECK(whole[0].tokens == 39);
    CHECK(whole[0].cuts == 0);
    CHECK(whole[1].tokens == 1);
    CHECK(whole[1].cuts == 1);
    // Without a slot for the state there, or a span for what is behind it, that waits.
    for (const auto& plan : {plan_of(2, 1), plan_of(1, 2)}) {
      REQUIRE(plan.size() == 1);
      CHECK(plan[0].tokens == 39);
    }
  }

  TEST_CASE("one that waits for a prefix cuts the chunk of the one that runs it") {
    Desk desk(sizes(100, 8),
              {.sequences_max = 2,
               .chunk_tokens = 200,
               .step_tokens = 200,
               .step_spans = 8,
               .shared_tokens_min = 16},
              {.enabled = true});
    std::vector<TokenId> first(80, TokenId{1}), second = first;
    std::fill(first.begin() + 50, first.end(), TokenId{2});
    desk.add(first, 2);
    desk.add(second, 2);
    const std::vector<Assignment> plan = desk.step();
    REQUIRE(plan.size() == 3);
    CHECK(plan[0].tokens == 50);
    CHECK(plan[1].tokens == 29);
    CHECK(plan[2].tokens == 1);
    CHECK(desk.prefixes().look_up(second).resumable == 50);
    const std::vector<Assignment> next = desk.step();
    CHECK(next.back().sequence->memory().length() == 80);
    CHECK(next.back().sequence->prompt().back() == TokenId{1});
  }

  TEST_CASE("random loads in tiny pools all come to an end") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      sim::Random random(seed);
      const std::int32_t pages = random.between(3, 20);
      const std::int32_t step_tokens = random.between(1, 20);
      Desk desk(sizes(pages, random.between(1, 5)),
                {.sequences_max = std::min(step_tokens, random.between(1, 8)),
                 .chunk_tokens = random.between(1, 20),
                 .step_tokens = step_tokens});
      std::vector<Sequence*> all;
      for (int i = 0; i < 12; ++i) {
        const std::int32_t prompt = random.between(1, pages * 4 - 1);
        all.push_back(&desk.add(prompt, random.between(1, pages * 4 - prompt)));
      }
      int steps = 0;
      std::int32_t oldest_done = 0;
      while (!desk.step().empty()) {
        REQUIRE(++steps < 20'000);
        while (oldest_done < 12 && all[static_cast<std::size_t>(oldest_done)]->finished()) {
          ++oldest_done;
        }
      }
      CHECK(oldest_done == 12);
      CHECK(desk.pool().pages_free() == pages);
    }
  }

  TEST_CASE("after a failed step all wait, hold nothing, and can go on") {
    Desk desk(sizes(100, 8), limits);
    Sequence& first = desk.add(5, 10);
    Sequence& second = desk.add(5, 10);
    desk.step();
    desk.step();
    desk.scheduler().plan();
    desk.scheduler().release_all();
    desk.scheduler().audit();
    CHECK(desk.pool().pages_free() == 100);
    CHECK(desk.scheduler().running() == 0);
    while (!first.finished() || !second.finished()) REQUIRE_FALSE(desk.step().empty());
    CHECK(first.tokens() == 15);
  }
}
