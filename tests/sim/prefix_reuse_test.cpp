#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/trace.h"
#include "tests/sim/fixture.h"

namespace prefix_reuse_test {

using namespace hyb;
using namespace hyb::sim;

TEST_SUITE("sim/prefix_reuse") {
  TEST_CASE("a chat runs what is new of each turn and nothing else") {
    Fixture fixture;
    Tokens history = prompt_of(50);
    std::int32_t stands = 0;  // tokens of the history that were run
    for (int turn = 0; turn < 6; ++turn) {
      const Completion& got = fixture.ask(request_of(history, 10));
      CHECK(got.usage.reused_tokens == stands);
      CHECK(got.usage.prefilled_tokens == static_cast<std::int32_t>(history.size()) - stands);
      CHECK(got.usage.reuse_limit ==
            (turn == 0 ? ReuseLimit::nothing_known : ReuseLimit::new_text));
      if (turn > 0) CHECK(got.usage.resumed_at == SnapshotPlace::turn_end);
      stands = static_cast<std::int32_t>(history.size()) + 9;  // the last token drawn is not run
      history = joined(joined(history, got.tokens), prompt_of(0, 12, turn));
    }
  }

  TEST_CASE("the same prompt again runs its last token") {
    Fixture fixture;
    const Request request = request_of(prompt_of(50));
    const Tokens first = fixture.ask(request).tokens;
    const Completion& again = fixture.ask(request);
    CHECK(again.tokens == first);
    CHECK(again.usage.reused_tokens == 49);
    CHECK(again.usage.matched_tokens == 50);
    CHECK(again.usage.reuse_limit == ReuseLimit::last_token);
    CHECK(again.usage.resumed_at == SnapshotPlace::prompt_end);
  }

  TEST_CASE("the end of a message is reused on its second use, another prefix on its third") {
    Fixture fixture;
    for (const bool has_end : {true, false}) {
      const Tokens system = prompt_of(0, 100, has_end ? 1 : 2);
      const auto ask = [&](std::int32_t who) {
        Request request = request_of(joined(system, prompt_of(0, 20, who)));
        if (has_end) request.message_ends = {100};
        return fixture.ask(request).usage;
      };
      CHECK(ask(5).reused_tokens == 0);
      const Usage second = ask(6);
      CHECK(second.reused_tokens == (has_end ? 100 : 0));
      CHECK(second.matched_tokens == 100);
      CHECK(second.reuse_limit == (has_end ? ReuseLimit::new_text : ReuseLimit::no_snapshot));
      const Usage third = ask(7);
      CHECK(third.reused_tokens == 100);
      CHECK(third.resumed_at == (has_end ? SnapshotPlace::message_end : SnapshotPlace::branch));
    }
  }

  TEST_CASE("prefilling ahead draws nothing, and the next prompt runs its own tokens only") {
    Fixture fixture;
    Request ahead = request_of(prompt_of(70));
    ahead.prefill_only = true;
    const Completion& got = fixture.ask(ahead);
    CHECK(got.reason == FinishReason::stop);
    CHECK(got.tokens.empty());
    CHECK(got.usage.prefilled_tokens == 70);
    const Usage next = fixture.ask(request_of(prompt_of(70, 15, 4))).usage;
    CHECK(next.reused_tokens == 70);
    CHECK(next.prefilled_tokens == 15);
    CHECK(fixture.ask(ahead).usage.prefilled_tokens <= 70);
  }

  TEST_CASE("a prompt again runs its last token alone where a snapshot is wanted before that") {
    for (const bool recurrence : {true, false}) {
      CAPTURE(recurrence);
      Fixture fixture(recurrence ? flat(1000, 20) : flat(1000, 0), usual,
                      {.recurrence = recurrence});
      Request request = request_of(prompt_of(50), 6);
      request.message_ends = {49};
      fixture.ask(request);
      for (const std::int32_t most : {6, 1}) {
        for (int seed = 0; seed < 4; ++seed) {
          request.max_tokens = most;
          request.sampling.temperature = seed == 0 ? 0.0F : 1.0F;
          request.sampling.seed = static_cast<std::uint64_t>(seed);
          const std::int64_t steps = fixture.runner.steps;
          const Completion& again = fixture.ask(request);
          CHECK(again.usage.reused_tokens == 49);
          CHECK(again.usage.prefilled_tokens == 1);
          CHECK(again.usage.reuse_limit == ReuseLimit::last_token);
          CHECK(fixture.runner.steps == steps + most);
        }
      }
      // The turn goes on from what its answer left.
      request.max_tokens = 6;
      const Tokens answer = fixture.ask(request).tokens;
      const Request next = request_of(joined(joined(prompt_of(50), answer), prompt_of(0, 5, 1)));
      CHECK(fixture.ask(next).usage.reused_tokens == 55);
    }
  }

  TEST_CASE("a request that keeps nothing leaves nothing") {
    Fixture fixture;
    Request request = request_of(prompt_of(100, 20, 1));
    request.keep_snapshots = false;
    request.message_ends = {100};
    fixture.ask(request);
    CHECK(fixture.engine.usage().snapshots == 0);
    CHECK(fixture.engine.pool().all_free());
    Fixture off(flat(1000, 20), {.length_max = 2000, .prefixes = {.enabled = false}});
    off.ask(request_of(prompt_of(100)));
    CHECK(off.ask(request_of(prompt_of(100))).usage.reuse_limit == ReuseLimit::off);
    CHECK(off.engine.pool().all_free());
  }

  TEST_CASE("of requests whose future is known only what is planned stays, as long as planned") {
    for (const bool recurrence : {true, false}) {
      Fixture fixture(recurrence ? flat(1000, 20) : flat(1000, 0), usual,
                      {.recurrence = recurrence});
      fixture.ask(request_of(prompt_of(50, 50, 9)));  // not of the plan
      const std::int32_t others = fixture.engine.usage().snapshots;
      for (std::int32_t who = 1; who <= 3; ++who) {
        Request request = request_of(prompt_of(0, 100, 3));
        for (const TokenId token : prompt_of(0, 20, who * 2)) request.prompt.push_back(token);
        request.needed_later = who < 3 ? 100 : 0;
        if (who < 3) request.message_ends = {100};
        CHECK(fixture.ask(request).usage.reused_tokens == (who == 1 ? 0 : 100));
        CHECK(fixture.engine.usage().snapshots == others + 1);
      }
      // The group is done: what it left goes first, though it is the youngest and was used most.
      REQUIRE(fixture.engine.prefixes().evict());
      CHECK(fixture.ask(request_of(prompt_of(0, 101, 3))).usage.reused_tokens == 0);
      CHECK(fixture.ask(request_of(prompt_of(50, 50, 9))).usage.reused_tokens == 99);
    }
  }

  TEST_CASE("requests in flight that begin alike run the common part once") {
    for (const auto& [recurrence, chunk] :
         {std::pair{true, 32}, {true, 1000}, {false, 32}, {false, 1000}}) {
      CAPTURE(recurrence);
      CAPTURE(chunk);
      EngineOptions options = usual;
      options.chunk_tokens = chunk;
      Capacity capacity = recurrence ? flat(1000, 20) : flat(1000, 0);
      capacity.step_tokens = 1000;
      Fixture fixture(capacity, options, {.recurrence = recurrence});
      for (std::int32_t who = 0; who < 6; ++who) {
        fixture.submit(request_of(joined(prompt_of(200, 0), prompt_of(0, 30, who * 2 + 1))));
        if (who == 1 && chunk < 200) fixture.engine.step();
      }
      fixture.run();
      std::int32_t prefilled = 0, waited = 0;
      for (std::size_t i = 0; i < 6; ++i) {
        const Usage usage = fixture.completion(i).usage;
        prefilled += usage.prefilled_tokens;
        waited += usage.waited_for_prefix ? 1 : 0;
      }
      CHECK(waited == 5);
      // Two of them may go on alike for a few tokens more.
      CHECK(prefilled <= 200 + 6 * 30);
      CHECK(prefilled >= 200 + 6 * 30 - 30);
      CHECK(fixture.engine.usage().prefix_waits >= 5);
    }
  }

  TEST_CASE("without recurrent layers a prefix is shared also by those that have passed it") {
    Fixture fixture(flat(1000, 0), usual, {.recurrence = false});
    fixture.submit(request_of(prompt_of(100, 50, 3), 200));
    for (int i = 0; i < 20; ++i) fixture.engine.step();
    CHECK(fixture.engine.running() == 1);
    fixture.submit(request_of(prompt_of(100, 50, 4)));
    fixture.run();
    CHECK(fixture.completion(1).usage.reused_tokens == 100);
    fixture.completion(0);
  }

  TEST_CASE("a request that waits for a prefix continues when its owner is cancelled") {
    Fixture fixture;
    fixture.submit(request_of(prompt_of(400, 30, 1)));
    fixture.submit(request_of(prompt_of(400, 30, 2)));
    fixture.submit(request_of(prompt_of(0, 9, 2)));
    fixture.engine.step();
    fixture.engine.step();
    CHECK(fixture.engine.running() == 2);
    CHECK(fixture.engine.waiting() == 1);
    fixture.engine.cancel(fixture.ids[0]);
    fixture.run();
    const Usage usage = fixture.completion(1).usage;
    CHECK(usage.waited_for_prefix);
    CHECK(usage.reused_tokens >= 64);  // what the cancelled one had run
    fixture.completion(2);
  }

  TEST_CASE("a prefix owner that loses its memory blocks no one else") {
    // The first one's answer takes ever more pages: the leader is sent away in the middle of its
    // prompt, while another one waits for it.
    EngineOptions slow = usual;
    slow.chunk_tokens = 1;
    Fixture fixture(flat(100, 6), slow);
    fixture.submit(request_of(prompt_of(0, 4, 9), 390));
    fixture.engine.step();
    fixture.submit(request_of(prompt_of(300, 10, 1), 20));
    fixture.submit(request_of(prompt_of(300, 10, 2), 20));
    bool led = false;
    while (!fixture.engine.idle()) {
      fixture.engine.step();
      led = led ||
            (fixture.engine.usage().prefix_waits > 0 && fixture.engine.usage().preemptions == 0);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(fixture.completion(i).reason == FinishReason::length);
    }
    CHECK(led);
    CHECK(fixture.engine.usage().preemptions > 0);
  }

  TEST_CASE("a sequence that was sent away comes back to its deepest snapshot") {
    Fixture fixture(flat(70, 8));
    fixture.submit(request_of(prompt_of(0, 20, 9), 250));
    Request long_one = request_of(prompt_of(100, 10, 1), 120);
    fixture.submit(long_one);
    fixture.run();
    fixture.completion(0);
    CHECK(fixture.completion(1).usage.reuse_limit == ReuseLimit::memory_was_taken);
    CHECK(fixture.engine.usage().preemptions > 0);
  }

  TEST_CASE("int8 snapshots are reported, and choices fork exactly all the same") {
    EngineOptions options = usual;
    options.prefixes.precision = Precision::int8;
    Fixture fixture(elastic(40), options);
    CHECK_FALSE(fixture.ask(request_of(prompt_of(50))).usage.resumed_packed);
    CHECK(fixture.ask(request_of(prompt_of(50))).usage.resumed_packed);
    CHECK(fixture.runner.packed > 0);

    Request request = request_of(prompt_of(0, 60, 3), 5);
    request.choices = 4;
    request.sampling.temperature = 1.0F;
    const std::int64_t packed = fixture.runner.packed;
    fixture.submit(request);
    while (fixture.engine.running() < 4) fixture.engine.step();
    CHECK(fixture.runner.packed - packed <= 1);  // the end of the prompt, for later requests
    fixture.run();
    std::int32_t prefilled = 0;
    for (std::int32_t choice = 0; choice < 4; ++choice) {
      prefilled += fixture.completion(2, choice).usage.prefilled_tokens;
    }
    CHECK(prefilled == 60 + 3);

    // The prompt is known by now: no choice runs more than its last token.
    fixture.submit(request);
    fixture.run();
    for (std::int32_t choice = 0; choice < 4; ++choice) {
      CHECK(fixture.completion(3, choice).usage.prefilled_tokens == 1);
    }
  }

  TEST_CASE("in a budget for a few snapshots much is evicted, and every answer is right") {
    for (const bool is_elastic : {false, true}) {
      CAPTURE(is_elastic);
      Fixture fixture(is_elastic ? elastic(14) : flat(60, 5));
      for (std::int32_t i = 0; i < 60; ++i) {
        fixture.submit(request_of(prompt_of(20 + i % 7, 20, i % 11), 12));
        if (i % 3 == 0) fixture.engine.step();
      }
      fixture.run();
      for (std::size_t i = 0; i < 60; ++i) fixture.completion(i);
      const EngineUsage usage = fixture.engine.usage();
      CHECK(usage.prefixes.evicted > 10);
      CHECK(usage.prefixes.hits > 10);
      CHECK(usage.pool.total() == fixture.engine.pool().layout().bytes());
      if (is_elastic) CHECK(usage.pool.owner_changes > 0);
    }
  }

  TEST_CASE("a failed step takes the snapshots that its orders were to fill, and no others") {
    for (const Precision precision : {Precision::exact, Precision::int8}) {
      EngineOptions options = usual;
      options.prefixes.precision = precision;
      Fixture fixture(elastic(40), options);
      fixture.ask(request_of(prompt_of(50)));
      // As int8 the end of the turn is packed by the next step.
      const std::int32_t to_fill = !fixture.engine.pool().orders().empty() ? 1 : 0;
      CHECK(to_fill == (precision == Precision::int8 ? 1 : 0));
      const std::int32_t before = fixture.engine.usage().snapshots;
      CHECK(before > 1);
      bool failed = false;
      fixture.runner.fails = [&] { return !std::exchange(failed, true); };
      fixture.submit(request_of(prompt_of(50, 5, 1)));
      CHECK_THROWS_AS(fixture.engine.step(), StepFailure);
      CHECK(fixture.engine.usage().snapshots == before - to_fill);
      fixture.engine.audit();
      fixture.run();
      CHECK(fixture.completion(1).usage.reused_tokens > 40);
    }
  }

  TEST_CASE("orders left at the end are executed on request") {
    EngineOptions options = usual;
    options.prefixes.precision = Precision::int8;
    Fixture fixture(elastic(40), options);
    fixture.ask(request_of(prompt_of(50)));
    CHECK(!fixture.engine.pool().orders().empty());  // the end of the turn is to be packed
    const std::int64_t packed = fixture.runner.packed;
    fixture.engine.carry_out_orders();
    CHECK(fixture.engine.pool().orders().empty());
    CHECK(fixture.runner.packed == packed + 1);
    fixture.engine.carry_out_orders();
    fixture.engine.audit();
  }

  TEST_CASE("requests are recorded, prefills are not") {
    std::ostringstream out;
    TraceRecorder recorder(out);
    Fixture fixture;
    fixture.engine.record(&recorder);
    Request ahead = request_of(prompt_of(10));
    ahead.prefill_only = true;
    fixture.ask(ahead);
    const Tokens answer = fixture.ask(request_of(prompt_of(20), 4)).tokens;
    fixture.ask(request_of(joined(joined(prompt_of(20), answer), prompt_of(0, 7, 1)), 2));
    fixture.engine.record(nullptr);
    fixture.ask(request_of(prompt_of(5)));
    std::vector<std::string> lines;
    std::istringstream in(out.str());
    for (std::string line; std::getline(in, line);) lines.push_back(line.substr(line.find(",")));
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == R"(,"session":"0","turn":1,"prompt":[[1,20]],"output":[[2,4]]})");
    CHECK(lines[1] == R"(,"session":"0","turn":2,"prompt":[[1,20],[2,4],[3,7]],"output":[[4,2]]})");
  }
}

}  // namespace prefix_reuse_test
