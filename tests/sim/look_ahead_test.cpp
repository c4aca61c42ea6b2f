#include <doctest/doctest.h>

#include <deque>
#include <vector>

#include "tests/sim/listener.h"
#include "tests/sim/random.h"
#include "tests/sim/toy_model.h"
#include "tests/sim/toy_runner.h"

namespace look_ahead_test {

using namespace hyb;
using namespace hyb::sim;

namespace {

using Tokens = std::vector<TokenId>;

constexpr std::int32_t sessions = 10, turns = 6;

/// Sessions that each ask their next question as soon as they have an answer: more of them than
/// the pool has room for.
struct Crowd {
  explicit Crowd(std::int32_t slots, std::int32_t look_ahead, std::uint64_t seed)
      : runner({.memory = flat_layout({.pages = 300, .slots = slots, .page_tokens = 4}),
                .step_tokens = 80,
                .sequences_max = 16,
                .vocab = 16},
               {}),
        engine(runner, nullptr,
               {.length_max = 1000,
                .sequences_max = 3,
                .chunk_tokens = 64,
                .look_ahead = look_ahead,
                .audit = true}),
        random(seed) {
    histories.resize(sessions);
    asked.resize(sessions);
    for (std::size_t session = 0; session < sessions; ++session) ask(session);
  }

  void ask(std::size_t session) {
    Request request;
    for (int i = random.between(5, 25); i > 0; --i) {
      histories[session].push_back(TokenId{random.between(0, 15)});
    }
    request.prompt = histories[session];
    request.max_tokens = random.between(1, 6);
    asked[session].push_back({request, engine.submit(request, sink)});
  }

  void run() {
    while (!engine.idle()) {
      engine.step();
      for (std::size_t session = 0; session < sessions; ++session) {
        const auto& last = asked[session].back();
        const Listener::Heard* const heard = sink.find(last.second, 0);
        if (heard == nullptr || !heard->completion || asked[session].size() == turns) continue;
        Tokens& history = histories[session];
        const Tokens& answer = heard->completion->tokens;
        history.insert(history.end(), answer.begin(), answer.end());
        ask(session);
      }
    }
  }

  /// All answers are the naive model's. Returns the tokens of prompts that were run.
  std::int64_t prefilled() const {
    std::int64_t tokens = 0;
    for (const auto& session : asked) {
      REQUIRE(session.size() == turns);
      for (const auto& [request, id] : session) {
        const Completion& got = *sink.find(id, 0)->completion;
        CHECK(got.tokens == answer_of({}, nullptr, 1000, request, 0).tokens);
        tokens += got.usage.prefilled_tokens + got.usage.recomputed_tokens;
      }
    }
    return tokens;
  }

  ToyRunner runner;
  Engine engine;
  Listener sink;
  Random random;
  std::vector<Tokens> histories;
  std::vector<std::vector<std::pair<Request, RequestId>>> asked;
};

}  // namespace

TEST_SUITE("sim/look_ahead") {
  TEST_CASE(
      "snapshots that waiting requests will resume from outlast the rest: less is run again") {
    for (const std::int32_t slots : {6, 8, 10}) {
      CAPTURE(slots);
      std::int64_t with = 0, without = 0, evicted = 0;
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        Crowd sparing(slots, 8, seed), blind(slots, 0, seed);
        sparing.run();
        blind.run();
        with += sparing.prefilled();
        without += blind.prefilled();
        evicted += sparing.engine.usage().prefixes.evicted;
      }
      MESSAGE("prefilled tokens: ", with, " looking ahead, ", without, " without");
      CHECK(evicted > 100);
      CHECK(with < without * 95 / 100);
    }
  }

  TEST_CASE("with next to no memory everybody still gets through") {
    for (const std::int32_t slots : {1, 2, 3}) {
      Crowd crowd(slots, 8, 1);
      crowd.run();
      crowd.prefilled();
    }
  }
}

}  // namespace look_ahead_test
