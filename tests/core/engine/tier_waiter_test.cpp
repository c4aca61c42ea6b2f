#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "core/engine/engine.h"
#include "core/engine/tier_waiter.h"
#include "core/memory/tier/snapshot_tier.h"
#include "tests/sim/layered_runner.h"
#include "tests/sim/listener.h"
#include "tests/support/shim_storage.h"

namespace tier_waiter_test {

using namespace hyb;
using namespace hyb::sim;
using namespace hyb::testing;

namespace {

using Tokens = std::vector<TokenId>;

Tokens prompt_of(std::int32_t count, std::int32_t salt) {
  Tokens prompt;
  for (std::int32_t i = 0; i < count; ++i) prompt.push_back(TokenId{(i * i + salt + i * salt) % 5});
  return prompt;
}

/// A model with recurrent layers and full attention.
LayeredModel recurrent_model() {
  for (std::uint64_t seed = 0;; ++seed) {
    Random random(seed);
    LayeredModel model(random);
    if (model.is_recurrent() && model.groups() == 1 && model.kind_of(0).name() == "full") {
      return model;
    }
  }
}

/// A superblock is 6 pages of 4 tokens or a slot.
MemoryLayout layout_of(const LayeredModel& model, std::int32_t superblocks) {
  return {.page_tokens = 4,
          .groups = {{.kind = &model.kind_of(0),
                      .page_bytes = LayeredRunner::page_bytes(model, 0, 4),
                      .pages_per_superblock = 6}},
          .slots = {.bytes = LayeredRunner::slot_bytes(), .per_superblock = 1},
          .packed = {.bytes = LayeredRunner::slot_bytes(), .per_superblock = 4},
          .superblock_bytes = 8192,
          .superblocks = superblocks,
          .fixed_superblocks = {}};
}

/// An engine over a tier whose disk blocks until the test releases it.
struct Fixture {
  explicit Fixture(Precision precision = Precision::exact, std::int32_t superblocks = 200,
                   const TierOptions& tier = {.limits = {.budget_bytes = 1 << 30,
                                                         .bytes_per_second = 1e30},
                                              .worker = TransferWorker::caller})
      : model(recurrent_model()),
        capacity{.memory = layout_of(model, superblocks),
                 .step_tokens = 64,
                 .sequences_max = 8,
                 .vocab = model.vocab()},
        runner(capacity, model),
        engine(runner, nullptr,
               {.length_max = 200,
                .chunk_tokens = 16,
                .prefixes = {.precision = precision, .branch_tokens_min = 1},
                .shared_tokens_min = 8,
                .audit = true}) {
    engine.add_tier("test tier", std::make_unique<ShimStorage>(disk), tier);
  }

  RequestId submit(const Tokens& prompt, std::int32_t max_tokens = 3) {
    Request request;
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    return engine.submit(request, sink);
  }
  const Completion& run(const Tokens& prompt) {
    const RequestId id = submit(prompt);
    while (!engine.idle()) engine.step();
    return *sink.find(id, 0)->completion;
  }
  void evict_all() {
    while (engine.prefixes().evict()) {
    }
    engine.tier()->drain();
  }

  LayeredModel model;
  Capacity capacity;
  LayeredRunner runner;
  ShimDisk disk;
  Listener sink;
  Engine engine;
};

}  // namespace

TEST_SUITE("core/engine/tier_desk") {
  TEST_CASE("a request waits for what the disk has of it; others go on meanwhile") {
    Fixture fixture;
    const Tokens known = prompt_of(60, 1);
    const Tokens answer = fixture.run(known).tokens;
    fixture.evict_all();
    const RequestId other = fixture.submit(prompt_of(40, 2), 30);
    fixture.engine.step();
    const RequestId waits = fixture.submit(known);
    for (int i = 0; i < 10; ++i) REQUIRE(fixture.engine.step());
    CHECK(fixture.engine.running() == 1);
    CHECK(fixture.sink.find(waits, 0) == nullptr);
    CHECK(fixture.engine.usage().tier_waits == 1);
    fixture.engine.tier()->run_transfers(1000);
    while (!fixture.engine.idle()) fixture.engine.step();
    const Completion& got = *fixture.sink.find(waits, 0)->completion;
    CHECK(got.tokens == answer);
    CHECK(got.usage.reused_tokens == 59);
    CHECK(got.usage.reused_from == SnapshotSource::disk);
    CHECK(fixture.sink.find(other, 0)->completion->tokens.size() == 30);
    // From now on it is in memory.
    CHECK(fixture.run(known).usage.reused_from == SnapshotSource::memory);
    CHECK(!fixture.run(prompt_of(30, 4)).usage.reused_from);
  }

  TEST_CASE("when nothing else runs, the step waits for the disk") {
    Fixture fixture;
    const Tokens known = prompt_of(60, 1);
    fixture.run(known);
    fixture.evict_all();
    const RequestId id = fixture.submit(known, 1);
    REQUIRE(fixture.engine.step());
    CHECK(fixture.engine.idle());
    CHECK(fixture.sink.find(id, 0)->completion->usage.reused_tokens == 59);
  }

  TEST_CASE("a request cancelled while it waits is gone, and its fetch is not delivered") {
    Fixture fixture;
    fixture.run(prompt_of(60, 1));
    fixture.evict_all();
    const RequestId other = fixture.submit(prompt_of(40, 2), 30);
    fixture.engine.step();
    const RequestId one = fixture.submit(prompt_of(60, 1));
    const RequestId two = fixture.submit(prompt_of(60, 1));
    fixture.engine.step();
    CHECK(fixture.engine.tier()->pending() == 1);
    fixture.engine.cancel(one);
    CHECK(fixture.engine.tier()->pending() == 1);  // the other one waits for it, too
    fixture.engine.cancel(two);
    CHECK(fixture.engine.tier()->pending() == 0);
    CHECK(fixture.engine.tier()->stats().dropped == 1);
    while (!fixture.engine.idle()) fixture.engine.step();
    CHECK(fixture.engine.tier()->stats().fetched == 0);
    CHECK(fixture.sink.find(two, 0)->completion->reason == FinishReason::cancelled);
    CHECK(fixture.sink.find(other, 0)->completion->reason == FinishReason::length);
    fixture.engine.audit();
  }

  TEST_CASE(
      "with int8 snapshots no sequence runs meanwhile: answers don't depend on the disk's speed") {
    Fixture fixture(Precision::int8);
    const Tokens known = prompt_of(60, 1);
    fixture.run(known);
    fixture.evict_all();
    fixture.submit(prompt_of(40, 2), 30);
    fixture.engine.step();
    const RequestId id = fixture.submit(known, 1);
    fixture.engine.step();
    CHECK(fixture.engine.usage().tier_waits == 0);
    REQUIRE(fixture.sink.find(id, 0)->completion.has_value());
    CHECK(fixture.sink.find(id, 0)->completion->usage.resumed_packed);
  }

  TEST_CASE("where prompts part is cut although only the disk has seen the first of them") {
    Fixture fixture;
    Tokens one = prompt_of(60, 1), two = one, three = one;
    for (const TokenId token : prompt_of(20, 2)) one.push_back(token);
    for (const TokenId token : prompt_of(20, 4)) two.push_back(token);
    for (const TokenId token : prompt_of(20, 5)) three.push_back(token);
    CHECK(fixture.run(one).usage.matched_tokens == 0);
    fixture.evict_all();
    const Usage second = fixture.run(two).usage;
    CHECK(second.reused_tokens == 0);
    CHECK(second.matched_tokens > 50);
    CHECK(second.reuse_limit == ReuseLimit::no_snapshot);
    fixture.evict_all();
    const Usage third = fixture.run(three).usage;
    CHECK(third.reused_tokens == second.matched_tokens);
    CHECK(third.reused_from == SnapshotSource::disk);
  }

  TEST_CASE("without room for itself and the fetched snapshot, a sequence starts from nothing") {
    // One slot and 48 tokens; or two slots and 24 tokens, which is the length of the snapshot. The
    // 25th token needs a page more: were the snapshot fetched again whenever its reader is sent
    // away for that, no sequence could continue.
    Fixture fixture(Precision::exact, 3);
    const Tokens prompt = prompt_of(25, 1);
    const Tokens answer = fixture.run(prompt).tokens;
    REQUIRE(answer.size() == 3);
    fixture.evict_all();
    REQUIRE(fixture.engine.tier()->stats().spilled > 0);
    const Completion& again = fixture.run(prompt);
    CHECK(again.tokens == answer);
    CHECK(fixture.engine.tier()->stats().fetched == 1);
    CHECK(fixture.engine.usage().preemptions > 0);
    CHECK(again.usage.reused_tokens + again.usage.prefilled_tokens == 25);
    CHECK(again.usage.reuse_limit == ReuseLimit::memory_was_taken);
  }

  TEST_CASE("a preempted sequence looks into the tier again") {
    Fixture fixture(Precision::exact, 12);
    const Tokens answers[] = {fixture.run(prompt_of(60, 1)).tokens,
                              fixture.run(prompt_of(60, 2)).tokens};
    fixture.evict_all();
    const std::int64_t fetched = fixture.engine.tier()->stats().fetched;
    std::vector<RequestId> ids;
    for (const std::int32_t salt : {1, 2}) ids.push_back(fixture.submit(prompt_of(60, salt), 90));
    while (!fixture.engine.idle()) {
      fixture.engine.step();
      fixture.engine.tier()->run_transfers(1000);
    }
    CHECK(fixture.engine.usage().preemptions > 0);
    CHECK(fixture.engine.tier()->stats().fetched > fetched + 2);
    for (int i : {0, 1}) {
      const Completion& got = *fixture.sink.find(ids[static_cast<std::size_t>(i)], 0)->completion;
      REQUIRE(got.tokens.size() == 90);
      CHECK(std::equal(answers[i].begin(), answers[i].end(), got.tokens.begin()));
    }
  }

  TEST_CASE("copies that do not end hold no step up, and change no answer") {
    const Tokens known = prompt_of(60, 1), other = prompt_of(40, 2), third = prompt_of(50, 3);
    std::vector<Tokens> wanted;
    {
      Fixture plain;
      for (const Tokens& prompt : {known, other, third}) wanted.push_back(plain.run(prompt).tokens);
    }
    std::atomic<bool> may_end = false;
    {
      Fixture fixture(
          Precision::exact, 200,
          {.limits = {.budget_bytes = 1 << 30, .bytes_per_second = 1e30}, .may_wait = false});
      fixture.runner.copies.room = 30;
      fixture.runner.copies.before_end = [&] {
        while (!may_end) std::this_thread::yield();
      };
      const auto evict = [&] {
        while (fixture.engine.prefixes().evict()) {
        }
      };
      CHECK(fixture.run(known).tokens == wanted[0]);
      evict();
      CHECK(fixture.run(other).tokens == wanted[1]);
      evict();
      CHECK(fixture.run(third).tokens == wanted[2]);
      evict();  // no room is left for its copy
      CHECK(fixture.engine.tier()->stats().spilled > 0);
      CHECK(fixture.engine.tier()->stats().late > 0);
      CHECK(fixture.runner.copies.under_way > 0);
      may_end = true;
      fixture.engine.tier()->drain();
      CHECK(fixture.runner.copies.under_way == 0);
      const Completion& again = fixture.run(known);
      CHECK(again.tokens == wanted[0]);
      CHECK(again.usage.reused_from == SnapshotSource::disk);
      may_end = false;
      evict();
      fixture.run(third);
      evict();
      CHECK(fixture.runner.copies.under_way > 0);
      may_end = true;  // as a card's do in the end; the rest is never tried
    }
  }
}

}  // namespace tier_waiter_test
