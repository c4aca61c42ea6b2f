#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/trace.h"
#include "tests/sim/desk.h"

namespace prefix_reuse_test {

using namespace hyb;
using namespace hyb::sim;

TEST_SUITE("sim/prefix_reuse") {
  TEST_CASE("a chat runs what is new of each turn and nothing else") {
    Desk desk;
    Tokens history = prompt_of(50);
    std::int32_t stands = 0;  // tokens of the history that were run
    for (int turn = 0; turn < 6; ++turn) {
      const Completion& got = desk.ask(request_of(history, 10));
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
    Desk desk;
    const Request request = request_of(prompt_of(50));
    const Tokens first = desk.ask(request).tokens;
    const Completion& again = desk.ask(request);
    CHECK(again.tokens == first);
    CHECK(again.usage.reused_tokens == 49);
    CHECK(again.usage.matched_tokens == 50);
    CHECK(again.usage.reuse_limit == ReuseLimit::last_token);
    CHECK(again.usage.resumed_at == SnapshotPlace::prompt_end);
  }

  TEST_CASE("the end of a message is reused on its second use, another prefix on its third") {
    Desk desk;
    for (const bool has_end : {true, false}) {
      const Tokens system = prompt_of(0, 100, has_end ? 1 : 2);
      const auto ask = [&](std::int32_t who) {
        Request request = request_of(joined(system, prompt_of(0, 20, who)));
        if (has_end) request.message_ends = {100};
        return desk.ask(request).usage;
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
    Desk desk;
    Request ahead = request_of(prompt_of(70));
    ahead.prefill_only = true;
    const Completion& got = desk.ask(ahead);
    CHECK(got.reason == FinishReason::stop);
    CHECK(got.tokens.empty());
    CHECK(got.usage.prefilled_tokens == 70);
    const Usage next = desk.ask(request_of(prompt_of(70, 15, 4))).usage;
    CHECK(next.reused_tokens == 70);
    CHECK(next.prefilled_tokens == 15);
    CHECK(desk.ask(ahead).usage.prefilled_tokens <= 70);
  }

  TEST_CASE("a request that keeps nothing leaves nothing") {
    Desk desk;
    Request request = request_of(prompt_of(100, 20, 1));
    request.keep_snapshots = false;
    request.message_ends = {100};
    desk.ask(request);
    CHECK(desk.engine.usage().snapshots == 0);
    CHECK(desk.engine.pool().all_free());
    Desk off(flat(1000, 20), {.length_max = 2000, .prefixes = {.enabled = false}});
    off.ask(request_of(prompt_of(100)));
    CHECK(off.ask(request_of(prompt_of(100))).usage.reuse_limit == ReuseLimit::off);
    CHECK(off.engine.pool().all_free());
  }

  TEST_CASE("of requests whose future is known only what is planned stays, as long as planned") {
    for (const bool recurrence : {true, false}) {
      Desk desk(recurrence ? flat(1000, 20) : flat(1000, 0), usual, {.recurrence = recurrence});
      desk.ask(request_of(prompt_of(50, 50, 9)));  // not of the plan
      const std::int32_t others = desk.engine.usage().snapshots;
      for (std::int32_t who = 1; who <= 3; ++who) {
        Request request = request_of(prompt_of(0, 100, 3));
        for (const TokenId token : prompt_of(0, 20, who * 2)) request.prompt.push_back(token);
        request.needed_later = who < 3 ? 100 : 0;
        if (who < 3) request.message_ends = {100};
        CHECK(desk.ask(request).usage.reused_tokens == (who == 1 ? 0 : 100));
        CHECK(desk.engine.usage().snapshots == others + 1);
      }
      // The group is done: what it left goes first, though it is the youngest and was used most.
      REQUIRE(desk.engine.prefixes().evict());
      CHECK(desk.ask(request_of(prompt_of(0, 101, 3))).usage.reused_tokens == 0);
      CHECK(desk.ask(request_of(prompt_of(50, 50, 9))).usage.reused_tokens == 99);
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
      Desk desk(capacity, options, {.recurrence = recurrence});
      for (std::int32_t who = 0; who < 6; ++who) {
        desk.submit(request_of(joined(prompt_of(200, 0), prompt_of(0, 30, who * 2 + 1))));
        if (who == 1 && chunk < 200) desk.engine.step();
      }
      desk.run();
      std::int32_t prefilled = 0, waited = 0;
      for (std::size_t i = 0; i < 6; ++i) {
        const Usage usage = desk.completion(i).usage;
        prefilled += usage.prefilled_tokens;
        waited += usage.waited_for_prefix ? 1 : 0;
      }
      CHECK(waited == 5);
      // Two of them may go on alike for a few tokens more.
      CHECK(prefilled <= 200 + 6 * 30);
      CHECK(prefilled >= 200 + 6 * 30 - 30);
      CHECK(desk.engine.usage().prefix_waits >= 5);
    }
  }

  TEST_CASE("without recurrent layers a prefix is shared also by those that have passed it") {
    Desk desk(flat(1000, 0), usual, {.recurrence = false});
    desk.submit(request_of(prompt_of(100, 50, 3), 200));
    for (int i = 0; i < 20; ++i) desk.engine.step();
    CHECK(desk.engine.running() == 1);
    desk.submit(request_of(prompt_of(100, 50, 4)));
    desk.run();
    CHECK(desk.completion(1).usage.reused_tokens == 100);
    desk.completion(0);
  }

  TEST_CASE("a request that waits for a prefix continues when its owner is cancelled") {
    Desk desk;
    desk.submit(request_of(prompt_of(400, 30, 1)));
    desk.submit(request_of(prompt_of(400, 30, 2)));
    desk.submit(request_of(prompt_of(0, 9, 2)));
    desk.engine.step();
    desk.engine.step();
    CHECK(desk.engine.running() == 2);
    CHECK(desk.engine.waiting() == 1);
    desk.engine.cancel(desk.ids[0]);
    desk.run();
    const Usage usage = desk.completion(1).usage;
    CHECK(usage.waited_for_prefix);
    CHECK(usage.reused_tokens >= 64);  // what the cancelled one had run
    desk.completion(2);
  }

  TEST_CASE("a prefix owner that loses its memory blocks no one else") {
    // The first one's answer takes ever more pages: the leader is sent away in the middle of its
    // prompt, while another one waits for it.
    EngineOptions slow = usual;
    slow.chunk_tokens = 1;
    Desk desk(flat(100, 6), slow);
    desk.submit(request_of(prompt_of(0, 4, 9), 390));
    desk.engine.step();
    desk.submit(request_of(prompt_of(300, 10, 1), 20));
    desk.submit(request_of(prompt_of(300, 10, 2), 20));
    bool led = false;
    while (!desk.engine.idle()) {
      desk.engine.step();
      led = led || (desk.engine.usage().prefix_waits > 0 && desk.engine.usage().preemptions == 0);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(desk.completion(i).reason == FinishReason::length);
    }
    CHECK(led);
    CHECK(desk.engine.usage().preemptions > 0);
  }

  TEST_CASE("a sequence that was sent away comes back to its deepest snapshot") {
    Desk desk(flat(70, 8));
    desk.submit(request_of(prompt_of(0, 20, 9), 250));
    Request long_one = request_of(prompt_of(100, 10, 1), 120);
    desk.submit(long_one);
    desk.run();
    desk.completion(0);
    CHECK(desk.completion(1).usage.reuse_limit == ReuseLimit::memory_was_taken);
    CHECK(desk.engine.usage().preemptions > 0);
  }

  TEST_CASE("int8 snapshots are reported, and choices fork exactly all the same") {
    EngineOptions options = usual;
    options.prefixes.precision = Precision::int8;
    Desk desk(elastic(40), options);
    CHECK_FALSE(desk.ask(request_of(prompt_of(50))).usage.resumed_packed);
    CHECK(desk.ask(request_of(prompt_of(50))).usage.resumed_packed);
    CHECK(desk.runner.packed > 0);

    Request request = request_of(prompt_of(0, 60, 3), 5);
    request.choices = 4;
    request.sampling.temperature = 1.0F;
    const std::int64_t packed = desk.runner.packed;
    desk.submit(request);
    while (desk.engine.running() < 4) desk.engine.step();
    CHECK(desk.runner.packed - packed <= 1);  // the end of the prompt, for later requests
    desk.run();
    std::int32_t prefilled = 0;
    for (std::int32_t choice = 0; choice < 4; ++choice) {
      prefilled += desk.completion(2, choice).usage.prefilled_tokens;
    }
    CHECK(prefilled == 60 + 3);

    // The prompt is known by now: no choice runs more than its last token.
    desk.submit(request);
    desk.run();
    for (std::int32_t choice = 0; choice < 4; ++choice) {
      CHECK(desk.completion(3, choice).usage.prefilled_tokens == 1);
    }
  }

  TEST_CASE("in a budget for a few snapshots much is evicted, and every answer is right") {
    for (const bool is_elastic : {false, true}) {
      CAPTURE(is_elastic);
      Desk desk(is_elastic ? elastic(14) : flat(60, 5));
      for (std::int32_t i = 0; i < 60; ++i) {
        desk.submit(request_of(prompt_of(20 + i % 7, 20, i % 11), 12));
        if (i % 3 == 0) desk.engine.step();
      }
      desk.run();
      for (std::size_t i = 0; i < 60; ++i) desk.completion(i);
      const EngineUsage usage = desk.engine.usage();
      CHECK(usage.prefixes.evicted > 10);
      CHECK(usage.prefixes.hits > 10);
      CHECK(usage.pool.total() == desk.engine.pool().layout().bytes());
      if (is_elastic) CHECK(usage.pool.owner_changes > 0);
    }
  }

  TEST_CASE("after a failed step no snapshot is trusted") {
    Desk desk;
    desk.ask(request_of(prompt_of(50)));
    CHECK(desk.engine.usage().snapshots > 0);
    bool failed = false;
    desk.runner.fails = [&] { return !std::exchange(failed, true); };
    desk.submit(request_of(prompt_of(50, 5, 1)));
    CHECK_THROWS_AS(desk.engine.step(), StepFailure);
    CHECK(desk.engine.usage().snapshots == 0);
    CHECK(desk.engine.pool().all_free());
    desk.run();
    CHECK(desk.completion(1).usage.reuse_limit == ReuseLimit::memory_was_taken);
  }

  TEST_CASE("orders left at the end are executed on request") {
    EngineOptions options = usual;
    options.prefixes.precision = Precision::int8;
    Desk desk(elastic(40), options);
    desk.ask(request_of(prompt_of(50)));
    CHECK(desk.engine.pool().has_orders());  // the end of the turn is to be packed
    const std::int64_t packed = desk.runner.packed;
    desk.engine.carry_out_orders();
    CHECK_FALSE(desk.engine.pool().has_orders());
    CHECK(desk.runner.packed == packed + 1);
    desk.engine.carry_out_orders();
    desk.engine.audit();
  }

  TEST_CASE("requests are recorded, prefills are not") {
    std::ostringstream out;
    TraceRecorder recorder(out);
    Desk desk;
    desk.engine.record(&recorder);
    Request ahead = request_of(prompt_of(10));
    ahead.prefill_only = true;
    desk.ask(ahead);
    const Tokens answer = desk.ask(request_of(prompt_of(20), 4)).tokens;
    desk.ask(request_of(joined(joined(prompt_of(20), answer), prompt_of(0, 7, 1)), 2));
    desk.engine.record(nullptr);
    desk.ask(request_of(prompt_of(5)));
    std::vector<std::string> lines;
    std::istringstream in(out.str());
    for (std::string line; std::getline(in, line);) lines.push_back(line.substr(line.find(",")));
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == R"(,"session":"0","turn":1,"prompt":[[1,20]],"output":[[2,4]]})");
    CHECK(lines[1] == R"(,"session":"0","turn":2,"prompt":[[1,20],[2,4],[3,7]],"output":[[4,2]]})");
  }
}

}  // namespace prefix_reuse_test
