// Prompts on one card and answers on another: answers, bytes and what is refused.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "app/runtime/fit.h"
#include "app/runtime/tiers.h"
#include "kernels/cuda/memory.h"
#include "tests/cuda/lanes_support.h"
#include "tests/cuda_emulator/card.h"
#include "tests/cuda_emulator/device/device_memory.h"

namespace card_lanes_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;
using emulator::Holder;
using emulator::ledger;

namespace {

/// While it lives there are two cards.
struct TwoCards {
  explicit TwoCards(bool are_peers) {
    emulator::set_cards(2);
    emulator::set_peer_access(are_peers);
  }
  ~TwoCards() {
    kernels::cuda::use_card(0);
    emulator::set_peer_access(true);
    emulator::set_cards(1);
  }
  TwoCards(const TwoCards&) = delete;
  TwoCards& operator=(const TwoCards&) = delete;
};

const LaneFlags two_cards = {.is_on = true};

/// What each kind of holder has of every card.
std::vector<std::size_t> held() {
  std::vector<std::size_t> bytes;
  for (const int card : {0, 1}) {
    for (const Holder holder :
         {Holder::allocation, Holder::handle, Holder::graph, Holder::pinned}) {
      bytes.push_back(ledger(card).bytes(holder));
    }
  }
  return bytes;
}

}  // namespace

TEST_SUITE("cuda_emulator/card_lanes") {
  TEST_CASE("answers are the same bytes with a card for prompts") {
    bool are_peers = true;
    for (const std::string& name : lane_models) {
      CAPTURE(name);
      CAPTURE(are_peers);
      const Run plain = run(options_for(name, {}));
      const TwoCards cards(are_peers);
      const std::vector<std::size_t> before = held();
      const Run apart = run(options_for(name, two_cards));
      CHECK(apart.answers == plain.answers);
      CHECK(apart.usage.prefill_steps >= 4);
      CHECK(apart.usage.handovers.sequences >= 3);
      CHECK(apart.usage.handovers.bytes > 0);
      CHECK(held() == before);
      are_peers = !are_peers;
    }
  }

  TEST_CASE("with drafts of the model's own layer, too") {
    const TwoCards cards(true);
    ModelOptions options = options_for("qwen3-next-odd", {});
    const Run plain = run(options);
    options.lanes = two_cards;
    options.speculation.source = DraftSource::mtp;
    options.speculation.is_heeded = true;
    options.speculation.draft_steps = 3;
    const Run drafted = run(options);
    CHECK(drafted.answers == plain.answers);
    CHECK(drafted.usage.speculation.total().steps > 0);
  }

  TEST_CASE("with pools that are too small for all at once, too") {
    const TwoCards cards(true);
    const Run plain = run(options_for("granite-moe-nope", {}));
    ModelOptions options = options_for("granite-moe-nope", two_cards);
    options.pool_memory = parse_memory("100KB");
    const Run apart = run(options);
    CHECK(apart.answers == plain.answers);
    CHECK(apart.usage.preemptions + apart.usage.deferrals > 0);
  }

  TEST_CASE("a next turn takes what the other card has, or runs where it lies") {
    const TwoCards cards(false);
    Session together = Session::open(resolve(options_for("granite-moe-nope", {}), {}), shape);
    Session apart = Session::open(resolve(options_for("granite-moe-nope", two_cards), {}), shape);
    std::vector<Request> asked = requests();
    for (int turn = 0; turn < 2; ++turn) {
      const Run plain = run(together, asked);
      CHECK(run(apart, asked).answers == plain.answers);
      for (std::size_t i = 0; i < asked.size(); ++i) {
        std::vector<TokenId>& prompt = asked[i].prompt;
        prompt.insert(prompt.end(), plain.answers[i].begin(), plain.answers[i].end());
        prompt.insert(prompt.end(), 6, TokenId{static_cast<std::int32_t>(10 + i)});
      }
    }
    const HandoverStats handed = apart.engine().usage().handovers;
    CHECK(handed.fetches + handed.stayed > 0);
    CHECK(apart.engine().usage().prefixes.hits > 0);
  }

  TEST_CASE("a request that is cancelled amid its prompt or its copies leaves nothing") {
    const TwoCards cards(true);
    const Run plain = run(options_for("qwen3_5-dense", {}));
    Session session = Session::open(resolve(options_for("qwen3_5-dense", two_cards), {}), shape);
    const std::vector<Request> asked = requests();
    for (int steps = 0; steps < 12; steps += 2) {
      CAPTURE(steps);
      Answer cancelled, kept;
      const RequestId first = session.engine().submit(asked[2], cancelled);
      session.engine().submit(asked[1], kept);
      for (int i = 0; i < steps; ++i) session.engine().step();
      session.engine().cancel(first);
      while (!session.engine().idle()) session.engine().step();
      CHECK(kept.tokens == plain.answers[1]);
    }
    CHECK(run(session).answers == plain.answers);
  }

  TEST_CASE("the card that prompts have may be either one") {
    const TwoCards cards(true);
    const Run plain = run(options_for("granite-moe-nope", {}));
    const LaneFlags other = {.is_on = true, .prefill_device = "cuda0"};
    {
      Session session = Session::open(resolve(options_for("granite-moe-nope", other), {}), shape);
      CHECK(session.settings().lanes->decode.card == 1);
      CHECK(session.settings().lanes->prefill.card == 0);
      CHECK(run(session).answers == plain.answers);
    }
    const LaneFlags second = {.is_on = true, .prefill_device = "cuda1", .decode_device = "cuda1"};
    Session session = Session::open(resolve(options_for("granite-moe-nope", second), {}), shape);
    CHECK(session.settings().lanes->share_memory);
    CHECK(ledger(0).bytes(Holder::handle) == 0);
  }

  TEST_CASE("fit says what each card and pinned memory hold") {
    for (const bool are_peers : {true, false}) {
      const TwoCards cards(are_peers);
      for (const LaneFlags& lanes : {one_card, two_cards}) {
        const ModelOptions options = options_for("granite-moe-nope", lanes);
        const RunSettings settings = resolve(options, {});
        const ModelOutline outline = outline_of(settings);
        const MemoryPlan fit =
            Fit(outline, budget_of(settings), options.threads, shape.chunk_tokens)
                .plan(context, shape.sequences_max);
        const std::vector<std::size_t> before = held();
        Session session = Session::open(resolve(options, {}), shape);
        CHECK(fit.cards == (session.settings().lanes->have_two_cards() ? 2 : 1));
        std::size_t pinned = 0;
        for (std::size_t card = 0; card < 2; ++card) {
          const auto more = [&](Holder holder) {
            const std::size_t at = 4 * card + static_cast<std::size_t>(holder);
            return held()[at] - before[at];
          };
          const bool is_used = static_cast<int>(card) < fit.cards;
          CHECK(more(Holder::allocation) ==
                (is_used ? fit.weights + fit.workspace + fit.library : 0));
          CHECK(more(Holder::handle) == (is_used ? fit.pool_bytes() : 0));
          pinned += more(Holder::pinned);
        }
        CHECK(pinned == fit.pinned);
      }
    }
  }

  TEST_CASE("what cards there are not, and what does not go together, is refused") {
    const auto error = [](const LaneFlags& lanes, kernels::Device device = kernels::Device::cuda) {
      ModelOptions options = options_for("granite-moe-nope", lanes);
      try {
        lanes_of(options, device);
      } catch (const Error& thrown) {
        CHECK(thrown.kind() == ErrorKind::usage);
        return std::string(thrown.what());
      }
      return std::string();
    };
    const auto has = [](const std::string& text, const char* part) {
      CAPTURE(text);
      CHECK(text.find(part) != std::string::npos);
    };
    has(error({.is_on = true, .prefill_device = "cuda1"}), "this machine has one card, cuda0");
    has(error({.is_on = true, .prefill_device = "cpu"}), "both lanes are on one kind of device");
    has(error({.is_on = true, .prefill_device = "cuda0"}, kernels::Device::cpu),
        "add --device cuda");
    has(error({.is_on = true, .prefill_threads = 1}), "divide the CPU");
    has(error({.is_on = true, .decode_device = "cuda1x"}), "is none of cpu, cuda0, cuda1");
    CHECK(error({.is_on = true}).empty());
    const TwoCards cards(true);
    has(error({.is_on = true, .decode_device = "cuda2"}), "this machine has cuda0 to cuda1");
    const RunSettings apart = resolve(options_for("granite-moe-nope", two_cards), {});
    CHECK_THROWS_WITH_AS(
        check_tiers({.disk_tier = 1U << 30, .disk_tier_folder = {}, .host_tier = {}}, apart),
        doctest::Contains("a tier extends one memory"), Error);
  }
}

}  // namespace card_lanes_test
