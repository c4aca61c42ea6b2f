#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/ids.h"
#include "core/engine/scheduler.h"
#include "core/memory/pool/layout.h"
#include "tests/sim/random.h"
#include "tests/support/free_units.h"

namespace scheduler_test {

using namespace hyb;

namespace {

constexpr std::int32_t tokens_min = 64;

using Tokens = std::vector<TokenId>;

/// `common` equal tokens, then `own` unique ones.
Tokens tokens_of(std::int32_t common, std::int32_t own, std::int32_t who) {
  Tokens tokens(static_cast<std::size_t>(common), TokenId{1});
  tokens.insert(tokens.end(), static_cast<std::size_t>(own), TokenId{100 + who});
  return tokens;
}

/// Sequences that are as old as they were added early.
class Crowd {
 public:
  Sequence& add(const Tokens& prompt, std::int32_t has_run = 0, bool keep_snapshots = true) {
    RequestTerms& terms = terms_.emplace_back();
    terms.id = RequestId{static_cast<std::int64_t>(terms_.size())};
    terms.request.prompt = prompt;
    terms.request.keep_snapshots = keep_snapshots;
    terms.length_max = 10'000;
    terms.tokenizer = nullptr;
    Sequence& sequence = sequences_.emplace_back(terms, 0);
    sequence.start(*pool_.start());
    if (has_run > 0) {
      REQUIRE(sequence.memory().reserve(has_run));
      sequence.ran(has_run, Clock::now());
    }
    running_.push_back(&sequence);
    return sequence;
  }

  std::span<Sequence* const> all_but_last() const {
    return std::span(running_).first(running_.size() - 1);
  }
  std::span<Sequence* const> all() const { return running_; }

  /// Of the last added.
  std::optional<std::int32_t> length(std::int32_t resumable = 0) const {
    const std::optional<PrefixOwner> prefix_owner =
        prefix_owner_for(*running_.back(), resumable, tokens_min, all_but_last());
    return prefix_owner ? std::optional(prefix_owner->length) : std::nullopt;
  }

 private:
  MemoryPool pool_ = MemoryPool(flat_layout({.pages = 1000, .slots = 20, .page_tokens = 16}));
  std::deque<RequestTerms> terms_;
  std::deque<Sequence> sequences_;
  std::vector<Sequence*> running_;
};

}  // namespace

TEST_SUITE("core/engine/prefix_owner") {
  TEST_CASE("one waits for an older one with much left of the same prefix") {
    Crowd crowd;
    crowd.add(tokens_of(200, 50, 0));
    crowd.add(tokens_of(200, 50, 1));
    CHECK(crowd.length() == 200);
    CHECK(crowd.length(136) == 200);
    CHECK_FALSE(crowd.length(137));  // 63 more are not worth it
  }

  TEST_CASE(
      "the last token is run in any case, and the prefix_owner may have no more than the prefix") {
    Crowd crowd;
    crowd.add(tokens_of(200, 0, 0));
    crowd.add(tokens_of(200, 0, 1));
    CHECK(crowd.length() == 199);
    crowd.add(tokens_of(200, 9, 2));
    CHECK(crowd.length() == 200);
    crowd.add(tokens_of(64, 0, 3));
    CHECK_FALSE(crowd.length());
    crowd.add(tokens_of(65, 0, 4));
    CHECK(crowd.length() == 64);
  }

  TEST_CASE(
      "one that has passed the prefix, is younger or leaves no snapshots is no prefix_owner") {
    Crowd crowd;
    crowd.add(tokens_of(200, 50, 0), 200);
    crowd.add(tokens_of(200, 50, 1), 0, false);
    Sequence& third = crowd.add(tokens_of(200, 50, 2));
    CHECK_FALSE(crowd.length());
    crowd.add(tokens_of(200, 50, 3));
    CHECK_FALSE(prefix_owner_for(third, 0, tokens_min, crowd.all()));
    CHECK(crowd.length() == 200);
  }

  TEST_CASE("of several the one with the longest prefix leads") {
    Crowd crowd;
    crowd.add(tokens_of(100, 50, 0));
    crowd.add(tokens_of(300, 50, 1), 299);
    crowd.add(tokens_of(250, 50, 2), 10);
    crowd.add(tokens_of(300, 50, 3));
    const std::optional<PrefixOwner> prefix_owner =
        prefix_owner_for(*crowd.all().back(), 0, tokens_min, crowd.all_but_last());
    REQUIRE(prefix_owner);
    CHECK(prefix_owner->length == 300);
    CHECK(prefix_owner->age.request == RequestId{2});
  }

  TEST_CASE("a snapshot that is wanted anyway will do, if it is near and ahead") {
    for (const auto& [cut, expected] : {std::pair{137, 137}, {136, 200}, {200, 200}, {201, 200}}) {
      Crowd crowd;
      crowd.add(tokens_of(200, 50, 0))
          .cuts()
          .add({.length = cut, .place = SnapshotPlace::message_end});
      crowd.add(tokens_of(200, 50, 1));
      CHECK(crowd.length() == expected);
      CHECK(crowd.length(100) == 200);
    }
    Crowd crowd;
    crowd.add(tokens_of(200, 50, 0), 150)
        .cuts()
        .add({.length = 150, .place = SnapshotPlace::branch});
    crowd.add(tokens_of(200, 50, 1));
    CHECK(crowd.length() == 200);
  }

  TEST_CASE("it is waited for as long as it runs and is not there") {
    Crowd crowd;
    Sequence& prefix_owner = crowd.add(tokens_of(200, 50, 0), 100);
    crowd.add(tokens_of(200, 50, 1));
    const std::optional<PrefixOwner> found =
        prefix_owner_for(*crowd.all().back(), 0, tokens_min, crowd.all_but_last());
    REQUIRE(found);
    CHECK(is_awaited(*found, crowd.all()));
    CHECK_FALSE(is_awaited(*found, crowd.all().subspan(1)));
    CHECK_FALSE(is_awaited(*found, {}));
    REQUIRE(prefix_owner.memory().reserve(100));
    prefix_owner.ran(100, Clock::now());
    CHECK_FALSE(is_awaited(*found, crowd.all()));
  }

  TEST_CASE("a prefix_owner is never one that could not serve, whatever the prompts") {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      CAPTURE(seed);
      sim::Random random(seed);
      Crowd crowd;
      for (int i = 0; i < 6; ++i) {
        const std::int32_t common = random.between(0, 300), own = random.between(1, 100);
        crowd.add(tokens_of(common, own, i), random.between(0, common + own - 1));
      }
      const Sequence& newcomer = *crowd.all().back();
      const std::int32_t resumable = random.between(0, newcomer.tokens() - 1);
      const std::optional<PrefixOwner> found =
          prefix_owner_for(newcomer, resumable, tokens_min, crowd.all_but_last());
      std::int32_t most = 0;
      for (const Sequence* other : crowd.all_but_last()) {
        const std::int32_t common =
            std::min(common_prefix(other->known(), newcomer.known()), newcomer.tokens() - 1);
        if (common > other->memory().length()) most = std::max(most, common);
      }
      CHECK(found.has_value() == (most >= resumable + tokens_min));
      if (found) CHECK(found->length == most);
    }
  }
}

namespace {

const FullAttention full;
const SlidingWindow window(8);

/// Superblocks of 6 full pages, 4 window pages, 2 slots or 3 packed snapshots.
MemoryLayout elastic(std::int32_t superblocks) {
  return {.page_tokens = 4,
          .groups = {{.kind = &full, .page_bytes = 10, .pages_per_superblock = 6},
                     {.kind = &window, .page_bytes = 15, .pages_per_superblock = 4}},
          .slots = {.bytes = 30, .per_superblock = 2},
          .packed = {.bytes = 20, .per_superblock = 3},
          .superblock_bytes = 60,
          .superblocks = superblocks,
          .fixed_superblocks = {}};
}

}  // namespace

TEST_SUITE("core/engine/memory_demand") {
  TEST_CASE("what is said to fit can be had, and what is not can not") {
    std::int32_t fitted = 0, refused = 0;
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
      CAPTURE(seed);
      sim::Random random(seed);
      MemoryPool pool(random.chance(50) ? elastic(random.between(3, 12))
                                        : flat_layout({.pages = random.between(4, 40),
                                                       .slots = random.between(1, 4),
                                                       .page_tokens = 4}));
      pool.limit_compaction(0);  // it would find room that cannot be guaranteed
      std::deque<Memory> memories;
      for (int i = 0; i < 30; ++i) {
        if (std::optional<Memory> started = pool.start(); started && random.chance(30)) {
          memories.push_back(*std::move(started));
        }
        if (memories.empty()) continue;
        Memory& memory = memories[random.below(memories.size())];
        const std::int32_t tokens = random.between(1, 30);
        const bool fits = MemoryDemand(pool).add_growth(memory, tokens).fits();
        const bool has = memory.reserve(tokens);
        CHECK(fits == has);
        ++(fits ? fitted : refused);
        if (has) memory.keep(tokens);
        if (random.chance(20)) memories.erase(memories.begin());
      }
    }
    CHECK(fitted > 1000);
    CHECK(refused > 1000);
  }

  TEST_CASE("a newcomer needs pages for what it cannot share, and a slot") {
    const auto fits = [](std::int32_t pages, std::int32_t slots, std::int32_t tokens,
                         std::int32_t resumable) {
      MemoryPool pool(flat_layout({.pages = pages, .slots = slots, .page_tokens = 4}));
      return MemoryDemand(pool).add_newcomer(tokens, resumable).fits();
    };
    CHECK(fits(5, 1, 20, 0));
    CHECK_FALSE(fits(5, 1, 21, 0));
    CHECK_FALSE(fits(5, 0, 21, 0));
    CHECK(fits(5, 1, 27, 8));
    CHECK_FALSE(fits(5, 1, 29, 11));
    MemoryPool one(flat_layout({.pages = 9, .slots = 1, .page_tokens = 4}));
    CHECK_FALSE(MemoryDemand(one).add_newcomer(4, 0).add_slots(1).fits());
  }

  TEST_CASE("what is free a little here and there is brought together for the driest view") {
    MemoryPool pool({.page_tokens = 4,
                     .groups = {{.kind = &full, .page_bytes = 10, .pages_per_superblock = 6}},
                     .slots = {.bytes = 30, .per_superblock = 2},
                     .packed = {},
                     .superblock_bytes = 60,
                     .superblocks = 5,
                     .fixed_superblocks = {}});
    std::vector<Memory> memories;
    for (int i = 0; i < 6; ++i) memories.push_back(*pool.start());
    REQUIRE(memories[0].reserve(48));  // two superblocks of pages, three of slots
    for (const std::ptrdiff_t gone : {5, 3, 1}) memories.erase(memories.begin() + gone);
    MemoryDemand demand(pool);
    demand.add_newcomer(4, 0);
    CHECK_FALSE(demand.fits());  // three slots are free, each in another superblock, and no page
    CHECK(demand.driest() == ViewId{0});
    CHECK(pool.compact_for(demand.driest()));
    CHECK(demand.fits());
    const std::optional<Memory> newcomer = pool.start();
    REQUIRE(newcomer);
    CHECK(pool.superblocks().free() == 1);
    CHECK_FALSE(pool.compact_for(ViewId{0}));  // all slots are where they should be
    CHECK(MemoryDemand(pool).add_slots(3).driest() == pool.layout().slot_view());
    pool.audit();
  }

  TEST_CASE("window layers need a window, however long the prompt") {
    MemoryPool pool(elastic(2));  // 12 full pages and none for anybody else
    CHECK_FALSE(MemoryDemand(pool).add_newcomer(40, 0).fits());
    MemoryPool more(elastic(4));  // 12 full pages, 4 of the window, 2 slots
    CHECK(MemoryDemand(more).add_newcomer(40, 0).fits());
  }

  TEST_CASE("beside those that run, shared pages count once and snapshots not at all") {
    MemoryPool pool(flat_layout({.pages = 10, .slots = 6, .page_tokens = 4}));
    RequestTerms terms = {.id = RequestId{1},
                          .request = {},
                          .stop = StopStrings(std::vector<std::string>{}),
                          .length_max = 100,
                          .tokenizer = nullptr,
                          .submitted = Clock::now()};
    terms.request.prompt.assign(21, TokenId{1});
    Sequence first(terms, 0), second(terms, 1);
    first.start(*pool.start());
    REQUIRE(first.memory().reserve(20));
    first.ran(20, Clock::now());
    const Checkpoint checkpoint = *first.memory().checkpoint();
    second.start(*pool.resume(checkpoint));
    std::vector<Sequence*> both = {&first, &second};
    CHECK(MemoryDemand(pool).add_newcomer(20, 0).fits_beside(both));
    CHECK_FALSE(MemoryDemand(pool).add_newcomer(21, 0).fits_beside(both));
    first.release();
    second.release();
    CHECK(pages_free(pool) == 5);  // the checkpoint's
    CHECK_FALSE(MemoryDemand(pool).add_newcomer(40, 0).fits());
    CHECK(MemoryDemand(pool).add_newcomer(40, 0).fits_beside({}));
  }
}

namespace {

/// A scheduler with sequences with answers of given lengths, and no model.
class Fixture {
 public:
  Fixture(const MemoryLayout& memory, const SchedulerLimits& limits)
      : Fixture(memory, limits, {.enabled = false}) {}
  Fixture(const MemoryLayout& memory, const SchedulerLimits& limits,
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
    Fixture fixture(sizes(100, 8), limits);
    Sequence& first = fixture.add(3, 20);
    fixture.step();
    Sequence& second = fixture.add(50, 20);
    Sequence& third = fixture.add(50, 20);
    const std::vector<Assignment> plan = fixture.step();
    REQUIRE(plan.size() == 3);
    CHECK(plan[0].sequence == &first);
    CHECK(plan[0].tokens == 1);
    CHECK(plan[1].sequence == &second);
    CHECK(plan[1].tokens == 10);
    CHECK(plan[2].sequence == &third);
    CHECK(plan[2].tokens == 5);
  }

  TEST_CASE("prompts that answers wait for have few tokens of a step, all of them together") {
    SchedulerLimits few = limits;
    few.mixed_tokens = 7;
    Fixture fixture(sizes(100, 8), few);
    Sequence& first = fixture.add(30, 20);
    CHECK(fixture.step().front().tokens == 10);  // nothing waits
    CHECK(fixture.step().front().tokens == 10);
    CHECK(fixture.step().front().tokens == 10);
    fixture.add(5, 20);
    fixture.add(50, 20);
    const std::vector<Assignment> plan = fixture.step();
    REQUIRE(plan.size() == 3);
    CHECK(plan[0].sequence == &first);
    CHECK(plan[0].tokens == 1);
    CHECK(plan[1].tokens == 5);
    CHECK(plan[2].tokens == 2);
    const std::vector<Assignment> next = fixture.step();
    REQUIRE(next.size() == 3);
    CHECK(next[0].tokens + next[1].tokens == 2);
    CHECK(next[2].tokens == 7);
  }

  TEST_CASE("no sequence overtakes an older waiting one") {
    Fixture fixture(sizes(10, 8), limits);
    fixture.add(20, 4);
    fixture.step();
    Sequence& large = fixture.add(20, 4);
    Sequence& small = fixture.add(1, 4);
    bool large_ran = false;
    while (!small.finished()) {
      for (const Assignment& entry : fixture.step()) {
        large_ran |= entry.sequence == &large;
        if (entry.sequence == &small) CHECK(large_ran);
      }
    }
  }

  TEST_CASE("a dry pool sends the youngest away and it comes back") {
    Fixture fixture(sizes(10, 8), limits);
    Sequence& old = fixture.add(12, 20);
    Sequence& young = fixture.add(12, 20);
    bool was_preempted = false;
    int steps = 0;
    while (!old.finished()) {
      fixture.step();
      was_preempted |= old.tokens() > 13 && young.memory().length() == 0;
      REQUIRE(++steps < 100);
    }
    CHECK(was_preempted);
    // The oldest lost no step: two chunks of its prompt, then one token each.
    CHECK(steps == 2 + 19);
    while (!young.finished()) {
      fixture.step();
      REQUIRE(++steps < 200);
    }
    CHECK(young.tokens() == 32);
    CHECK(pages_free(fixture.pool()) == 10);
    CHECK(slots_free(fixture.pool()) == 8);
  }

  TEST_CASE("an older prompt takes the pages of a younger one that has no turn") {
    // Three that decode eat 12 pages by step 13, the two prompts 3 and 3 of their 5: all are gone
    // when, in step 14, first the older one needs its fourth.
    Fixture fixture(sizes(18, 8), {.sequences_max = 8, .chunk_tokens = 1, .step_tokens = 16});
    for (int i = 0; i < 3; ++i) fixture.add(1, 60);
    fixture.step();
    Sequence& older = fixture.add(19, 1);
    Sequence& younger = fixture.add(19, 1);
    int steps = 1;
    std::int32_t before = 0;
    do {
      before = older.memory().length();
      fixture.step();
      REQUIRE(++steps < 30);
    } while (younger.memory().length() > 0);
    CHECK(older.memory().length() == before + 1);
    CHECK(steps == 14);
  }

  TEST_CASE("an endless stream of newcomers delays none of the earlier ones") {
    Fixture fixture(sizes(40, 3), limits);
    Sequence& old = fixture.add(30, 30);
    int steps = 0;
    while (!old.finished()) {
      for (int i = 0; i < 5; ++i) fixture.add(3, 2);
      fixture.step();
      REQUIRE(++steps < 100);
    }
    CHECK(steps == 3 + 29);
  }

  TEST_CASE("a chunk is cut to the room there is, and the prompt still gets through") {
    Fixture fixture(sizes(5, 2), {.sequences_max = 2, .chunk_tokens = 16, .step_tokens = 16});
    Sequence& only = fixture.add(17, 3);
    while (!only.finished()) REQUIRE_FALSE(fixture.step().empty());
    CHECK(only.tokens() == 20);
  }

  TEST_CASE("limits of sequences and slots hold") {
    for (const std::int32_t slots : {0, 2, 5}) {
      Fixture fixture(sizes(100, slots),
                      {.sequences_max = 4, .chunk_tokens = 4, .step_tokens = 16});
      for (int i = 0; i < 9; ++i) fixture.add(2, 3);
      std::int32_t most = 0;
      while (!fixture.step().empty()) most = std::max(most, fixture.scheduler().running());
      CHECK(most <= (slots == 2 ? 2 : 4));
      CHECK(most >= 1);
      CHECK(fixture.scheduler().running() == 0);
    }
  }

  TEST_CASE("what follows a cut runs in the same step") {
    const PrefixCacheOptions prefixes = {.enabled = true};
    const std::vector<TokenId> prompt(40, TokenId{1});
    const auto plan_of = [&](std::int32_t slots, std::int32_t spans) {
      Fixture fixture(
          sizes(100, slots),
          {.sequences_max = 1, .chunk_tokens = 50, .step_tokens = 50, .step_spans = spans},
          prefixes);
      fixture.add(prompt, 2);
      std::vector<Assignment> plan = fixture.step();
      // Either way a snapshot is left before the prompt's last token, if it may have the slot.
      CHECK(fixture.prefixes().look_up(prompt).resumable == (slots > 1 ? 39 : 0));
      return plan;
    };
    const std::vector<Assignment> whole = plan_of(4, 2);
    REQUIRE(whole.size() == 2);
    CHECK(whole[0].tokens == 39);
    CHECK(whole[0].cuts == 0);
    CHECK(whole[1].tokens == 1);
    CHECK(whole[1].cuts == 1);
    // Without a slot for the state there, or a span for what follows, that waits.
    for (const auto& plan : {plan_of(2, 1), plan_of(1, 2)}) {
      REQUIRE(plan.size() == 1);
      CHECK(plan[0].tokens == 39);
    }
  }

  TEST_CASE("one that waits for a prefix cuts the chunk of the one that runs it") {
    Fixture fixture(sizes(100, 8),
                    {.sequences_max = 2,
                     .chunk_tokens = 200,
                     .step_tokens = 200,
                     .step_spans = 8,
                     .shared_tokens_min = 16},
                    {.enabled = true});
    std::vector<TokenId> first(80, TokenId{1}), second = first;
    std::fill(first.begin() + 50, first.end(), TokenId{2});
    fixture.add(first, 2);
    fixture.add(second, 2);
    const std::vector<Assignment> plan = fixture.step();
    REQUIRE(plan.size() == 3);
    CHECK(plan[0].tokens == 50);
    CHECK(plan[1].tokens == 29);
    CHECK(plan[2].tokens == 1);
    CHECK(fixture.prefixes().look_up(second).resumable == 50);
    const std::vector<Assignment> next = fixture.step();
    CHECK(next.back().sequence->memory().length() == 80);
    CHECK(next.back().sequence->prompt().back() == TokenId{1});
  }

  TEST_CASE("random loads in tiny pools all come to an end") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      sim::Random random(seed);
      const std::int32_t pages = random.between(3, 20);
      const std::int32_t step_tokens = random.between(1, 20);
      Fixture fixture(sizes(pages, random.between(1, 5)),
                      {.sequences_max = std::min(step_tokens, random.between(1, 8)),
                       .chunk_tokens = random.between(1, 20),
                       .step_tokens = step_tokens});
      std::vector<Sequence*> all;
      for (int i = 0; i < 12; ++i) {
        const std::int32_t prompt = random.between(1, pages * 4 - 1);
        all.push_back(&fixture.add(prompt, random.between(1, pages * 4 - prompt)));
      }
      int steps = 0;
      std::int32_t oldest_done = 0;
      while (!fixture.step().empty()) {
        REQUIRE(++steps < 20'000);
        while (oldest_done < 12 && all[static_cast<std::size_t>(oldest_done)]->finished()) {
          ++oldest_done;
        }
      }
      CHECK(oldest_done == 12);
      CHECK(pages_free(fixture.pool()) == pages);
    }
  }

  TEST_CASE("after a failed step all wait, hold nothing, and can go on") {
    Fixture fixture(sizes(100, 8), limits);
    Sequence& first = fixture.add(5, 10);
    Sequence& second = fixture.add(5, 10);
    fixture.step();
    fixture.step();
    fixture.scheduler().plan();
    fixture.scheduler().fail({}, {}, false);
    fixture.scheduler().audit();
    CHECK(pages_free(fixture.pool()) == 100);
    CHECK(fixture.scheduler().running() == 0);
    while (!first.finished() || !second.finished()) REQUIRE_FALSE(fixture.step().empty());
    CHECK(first.tokens() == 15);
  }
}

}  // namespace scheduler_test
