#include <doctest/doctest.h>

#include <random>

#include "app/base/texts.h"
#include "app/chat/commands.h"
#include "app/runtime/fit.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/session.h"
#include "app/runtime/tiers.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/memory/tier/snapshot_tier.h"
#include "kernels/arena/superblock_map.h"
#include "kernels/cuda/driver.h"
#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/kernels/arena/fake_driver.h"
#include "tests/models/loaded.h"
#include "tests/support/files.h"

namespace session_memory_test {

using namespace hyb;
using namespace hyb::app;
using emulator::Holder;
using emulator::ledger;
using hyb::testing::TemporaryFolder;

namespace {

struct Quiet {
  Quiet() { log::set_level(log::Level::error); }
  ~Quiet() { log::set_level(log::Level::info); }
};

/// What the card and its pinned memory hold, beyond what they held before.
struct Held {
  std::size_t allocations = ledger().bytes(Holder::allocation),
              handles = ledger().bytes(Holder::handle), pinned = ledger().bytes(Holder::pinned);

  Held since(const Held& before) const {
    Held more = *this;
    more.allocations -= before.allocations;
    more.handles -= before.handles;
    more.pinned -= before.pinned;
    return more;
  }
  bool operator==(const Held&) const = default;
};

const SessionShape shape = {.sequences_max = 3, .chunk_tokens = 64};

ModelOptions options_for(const std::string& name) {
  ModelOptions options;
  options.model = (models::testing::golden_folder / name).string();
  options.device = kernels::Device::cuda;
  options.threads = 2;
  options.memory = parse_memory("24MiB");
  options.context = 200;
  return options;
}

class Collected : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId, std::int32_t, const Completion& completion) override {
    tokens = completion.tokens;
  }
  std::vector<TokenId> tokens;
};

void submit(Session& session, Collected& sink, std::int32_t number, std::int32_t max_tokens = 6) {
  Request request;
  for (std::int32_t i = 0; i < 40; ++i) {
    request.prompt.push_back(TokenId{(i * 7 + 3 + number) % 50});
  }
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  session.engine().submit(request, sink);
}

std::vector<TokenId> answer_of(Session& session, std::int32_t number = 0,
                               std::int32_t max_tokens = 6) {
  Collected sink;
  submit(session, sink, number, max_tokens);
  while (!session.engine().idle()) session.engine().step();
  return sink.tokens;
}

bool has_row(const std::string& text, const std::string& owner, std::size_t bytes) {
  for (std::size_t at = text.find(owner); at != std::string::npos; at = text.find(owner, at + 1)) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    if (line.find(bytes_text(bytes)) != std::string::npos) return true;
  }
  return false;
}

/// What fit says is what opening takes, what /mem shows and what the card counts.
void check_fit(const ModelOptions& options, std::int32_t chunk_tokens = shape.chunk_tokens) {
  const SessionShape asked = {.sequences_max = shape.sequences_max, .chunk_tokens = chunk_tokens};
  const RunSettings settings = resolve(options, {});
  const ModelOutline outline = outline_of(settings);
  const MemoryPlan fit = Fit(outline, budget_of(settings), options.threads, chunk_tokens)
                             .plan(options.context, shape.sequences_max);
  const Held before;
  {
    Session session = Session::open(resolve(options, {}), asked);
    const Held held = Held().since(before);
    CHECK(held.allocations == fit.weights + fit.workspace + fit.library);
    const bool is_backed = options.pools.mode != kernels::MapMode::remap;
    if (is_backed) CHECK(held.handles == fit.pool_bytes());
    CHECK(held.pinned == fit.pinned);
    CHECK(session.memory().weights == fit.weights);
    CHECK(session.memory().workspace == fit.workspace);
    CHECK(session.memory().total() == fit.total());
    CHECK(session.runner().workspace_bytes() == fit.workspace);
    CHECK(session.model().weights.bytes() == fit.weights);
    answer_of(session);
    // Nothing more is taken while it runs, but for graphs.
    const Held later = Held().since(before);
    CHECK(later.allocations == held.allocations);
    CHECK(later.pinned == held.pinned);
    if (is_backed) CHECK(later.handles == held.handles);
    const EngineUsage usage = session.engine().usage();
    const std::string text = memory_text(session.memory(), usage);
    CHECK(usage.pool.total() == fit.pool_bytes());
    CHECK(has_row(text, "weights", fit.weights));
    CHECK(has_row(text, "workspace", fit.workspace));
    CHECK(has_row(text, "pinned", fit.pinned));
    CHECK(has_row(text, "budget", fit.budget));
  }
  CHECK(Held() == before);
}

}  // namespace

/// What the calls of the card's driver take, by its clock, as long as this lives.
struct CallsTake {
  explicit CallsTake(double seconds) { of_now().set_call_seconds(seconds); }
  ~CallsTake() { of_now().set_call_seconds(usual); }
  static constexpr double usual = 4e-6;
  static kernels::testing::FakeDriver& of_now() {
    kernels::cuda::driver();  // makes it
    return kernels::testing::FakeDriver::current();
  }
};

TEST_SUITE("cuda_emulator/session_memory") {
  TEST_CASE("pools are cut so that the driver's calls take a second at most, as a trial says") {
    const ModelOptions options = options_for("granite-dense-rope");
    struct Opened {
      std::size_t handle_bytes;
      double seconds;
      int calls;
      std::vector<TokenId> answer;
    };
    const auto open = [&](double call_seconds) {
      const CallsTake slow(call_seconds);
      const int before = CallsTake::of_now().calls();
      Session session = Session::open(resolve(options, {}), shape);
      const int calls = CallsTake::of_now().calls() - before;
      return Opened{
          .handle_bytes = kernels::SuperblockMap::handle_bytes(session.memory().pools.superblocks),
          .seconds = calls * call_seconds,
          .calls = calls,
          .answer = answer_of(session)};
    };
    const Opened quick = open(CallsTake::usual), slow = open(1e-3), slower = open(4e-3);
    CHECK(quick.calls * 1e-3 > 2);  // what is to be avoided
    CHECK(slow.seconds < 1.5);      // with the trial's own
    CHECK(slow.handle_bytes > quick.handle_bytes);
    CHECK(slower.calls < slow.calls);
    CHECK(slower.handle_bytes > slow.handle_bytes);
    CHECK(slow.answer == quick.answer);
    CHECK(slower.answer == quick.answer);
  }

  TEST_CASE(
      "--lossless on: the same answer from fewer bytes, which are counted once they are known") {
    const Quiet quiet;
    ModelOptions options = options_for("granite-moe-nope");
    options.types.activation = DType::bf16;
    std::vector<TokenId> answers[2];
    std::size_t weights[2];
    for (const bool is_on : {false, true}) {
      CAPTURE(is_on);
      options.types.lossless = is_on;
      const Held before;
      Session session = Session::open(resolve(options, {}), shape);
      const MemoryPlan& memory = session.memory();
      CHECK(Held().since(before).allocations == memory.weights + memory.workspace + memory.library);
      CHECK(Held().since(before).handles == memory.pool_bytes());
      CHECK(session.model().weights.bytes() == memory.weights);
      answers[is_on] = answer_of(session);
      weights[is_on] = memory.weights;
    }
    CHECK(answers[0].size() == 6);
    CHECK(answers[0] == answers[1]);
    CHECK(weights[1] < weights[0]);
  }

  TEST_CASE("fit says what a session takes of the card, to the byte") {
    for (const auto& [word, mode] : words::memory_mode) {
      CAPTURE(word);
      if (mode == kernels::MapMode::flip) continue;  // auto
      ModelOptions options = options_for("granite-moe-nope");
      options.pools.mode = mode;
      check_fit(options);
    }
    for (const char* const name : {"qwen3-next", "nemotron-latent", "lfm2-moe", "granite-groups"}) {
      CAPTURE(name);
      check_fit(options_for(name));
    }
    for (const QuantizeChoice quantize : {QuantizeChoice::q8, QuantizeChoice::q4}) {
      CAPTURE(word_of(words::quantize, quantize));
      ModelOptions options = options_for("granite-moe-nope");
      options.types.quantize = quantize;
      options.types.random_weights = 5;
      check_fit(options);
    }
    ModelOptions options = options_for("granite-moe-nope");
    options.types.activation = DType::bf16;
    options.types.kv = DType::f32;
    options.types.state = DType::bf16;
    options.reuse.snapshots = Precision::int8;
    options.batch_invariant = true;
    options.types.random_weights = 5;
    for (const DraftSource drafts :
         {DraftSource::automatic, DraftSource::ngram, DraftSource::off}) {
      CAPTURE(word_of(words::spec, drafts));
      options.speculation.source = drafts;
      check_fit(options);
    }
  }

  TEST_CASE("columns in an order: fit counts the orders and the room for ordered rows") {
    const Quiet quiet;
    const ModelOptions options = options_for("qwen3-moe-gptq");
    const RunSettings settings = resolve(options, {});
    const ModelOutline outline = outline_of(settings);
    const MemoryPlan fit = Fit(outline, budget_of(settings), options.threads, shape.chunk_tokens)
                               .plan(options.context, shape.sequences_max);
    ModelOutline without = outline_of(settings);
    without.geometry.load.blocks.ordered_columns = 0;
    const MemoryPlan plain = Fit(without, budget_of(settings), options.threads, shape.chunk_tokens)
                                 .plan(options.context, shape.sequences_max);
    const auto rows = static_cast<std::size_t>(shape.chunk_tokens + shape.sequences_max);
    CHECK(fit.workspace == plain.workspace + rows * 64 * 2);
    const Held before;
    Session session = Session::open(settings, shape);
    const std::size_t weights = session.model().weights.bytes();
    CHECK(Held().since(before).allocations == weights + fit.workspace + fit.library);
    CHECK(session.memory().workspace == fit.workspace);
    CHECK(session.runner().workspace_bytes() == fit.workspace);
    // Keys and values share an order in both layers, which is not known before it is read.
    CHECK(fit.weights == weights + 2 * 64 * sizeof(std::int32_t));
  }

  TEST_CASE("without -u the chunks are as large as the card's speed asks for, and fit says so") {
    const kernels::Card card = kernels::card();  // an H200
    CHECK(card.bytes_per_s == doctest::Approx(4.9e12).epsilon(0.01));
    CHECK(card.flops_per_s == doctest::Approx(1.07e15).epsilon(0.01));
    ModelOptions options = options_for("granite-moe-nope");
    options.types.activation = DType::bf16;
    options.context = 4000;
    options.memory = parse_memory("200MiB");
    const RunSettings settings = resolve(options, {});
    const ModelOutline outline = outline_of(settings);
    CHECK(Fit(outline, budget_of(settings), options.threads).plan(4000, 3).chunk_tokens >= 2048);
    check_fit(options, 0);
    options.memory = parse_memory("24MiB");
    check_fit(options, 0);
  }

  TEST_CASE("whatever is refused while a model is opened, it opens, or says what it would take") {
    const Quiet quiet;
    ModelOptions options = options_for("granite-dense-rope");
    options.memory = parse_memory("auto");
    options.pool_memory = parse_memory("16MiB");
    const Held before;
    std::vector<TokenId> expected;
    std::int64_t all = 0;
    {
      const std::int64_t requests = ledger().requests();
      Session session = Session::open(resolve(options, {}), shape);
      all = ledger().requests() - requests;
      expected = answer_of(session);
    }
    std::mt19937 random(1);
    int opened = 0, shrunk = 0;
    for (int i = 0; i < 12; ++i) {
      const auto n = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(all));
      const std::int64_t count = i % 2 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % 6);
      CAPTURE(n);
      CAPTURE(count);
      ledger().refuse(n, count);
      try {
        Session session = Session::open(resolve(options, {}), shape);
        ledger().refuse(0);
        CHECK(answer_of(session) == expected);
        ++opened;
        if (session.memory().pool_bytes() < (15U << 20)) ++shrunk;
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::memory);
        CHECK(std::string(error.what()).find("refused") != std::string::npos);
      }
      ledger().refuse(0);
      CHECK(Held() == before);
    }
    MESSAGE("opened " << opened << " of 12, with smaller pools " << shrunk);
    CHECK(opened > 6);
    CHECK(shrunk > 0);

    options.memory = parse_memory("24MiB");  // as much as was requested, or none
    ledger().refuse(all - 2);
    CHECK_THROWS_WITH_AS(Session::open(resolve(options, {}), shape),
                         doctest::Contains("the weights take"), Error);
    ledger().refuse(0);
    CHECK(Held() == before);
  }

  TEST_CASE(
      "--host-tier: answers are the same, from the host's memory, and the bytes are counted") {
    const Quiet quiet;
    const ModelOptions options = options_for("granite-moe-nope");
    const TierFlags flags = {.disk_tier = {}, .disk_tier_folder = {}, .host_tier = 32U << 20};
    SessionShape tiered = shape;
    tiered.host_tier_bytes = check_tiers(flags, resolve(options, {}));
    CHECK(tiered.host_tier_bytes == 32U << 20);
    std::vector<TokenId> expected;
    std::size_t pinned = 0, workspace = 0;
    {
      Session plain = Session::open(resolve(options, {}), shape);
      expected = answer_of(plain);
      pinned = plain.memory().pinned;
      workspace = plain.memory().workspace;
    }
    const Held before;
    {
      Session session = Session::open(resolve(options, {}), tiered);
      add_tiers(session, flags, {});
      const MemoryPlan& memory = session.memory();
      CHECK(memory.side_copies.out == 2U << 20);
      CHECK(memory.side_copies.back == 4U << 20);
      CHECK(memory.pinned == pinned + (6U << 20));
      CHECK(memory.workspace == workspace + memory.side_copies.out);
      const Held held = Held().since(before);
      CHECK(held.pinned == memory.pinned);
      CHECK(held.allocations == memory.weights + memory.workspace + memory.library);
      SnapshotTier& tier = *session.engine().tier();
      for (int i = 0; i < 4; ++i) {
        CHECK(answer_of(session) == expected);
        while (session.engine().prefixes().evict()) {
        }
      }
      tier.drain();
      const TierStats stats = tier.stats();
      CHECK(stats.spilled > 0);
      CHECK(stats.fetched == 3);
      CHECK(stats.late == 0);
      CHECK(stats.damaged == 0);
      CHECK(tier_text(&tier).starts_with("host tier: "));
      answer_of(session);
      while (session.engine().prefixes().evict()) {  // copies are under way when it ends
      }
    }
    CHECK(Held() == before);
    tiered.host_tier_bytes = 4096;
    CHECK_THROWS_WITH_AS(Session::open(resolve(options, {}), tiered),
                         doctest::Contains("give at least"), Error);
    CHECK_THROWS_WITH_AS(
        check_tiers({.disk_tier = 1U << 30, .disk_tier_folder = {}, .host_tier = 1U << 30},
                    resolve(options, {})),
        doctest::Contains("the larger size"), Error);
    ModelOptions packed = options;
    packed.reuse.snapshots = Precision::int8;
    CHECK_THROWS_WITH_AS(check_tiers(flags, resolve(packed, {})),
                         doctest::Contains("--snapshots int8"), Error);
  }

  TEST_CASE("--host-tier: steps go on beside a copy that comes back, and do not wait for it") {
    const Quiet quiet;
    const ModelOptions options = options_for("granite-moe-nope");
    const TierFlags flags = {.disk_tier = {}, .disk_tier_folder = {}, .host_tier = 32U << 20};
    SessionShape tiered = shape;
    tiered.host_tier_bytes = check_tiers(flags, resolve(options, {}));
    Session session = Session::open(resolve(options, {}), tiered);
    add_tiers(session, flags, {});
    Engine& engine = session.engine();
    SnapshotTier& tier = *engine.tier();
    const std::vector<TokenId> running_alone = answer_of(session, 1, 100);
    const std::vector<TokenId> expected = answer_of(session);
    while (engine.prefixes().evict()) {
    }
    tier.drain();
    const auto slots = [&] {
      const PoolUsage& pool = engine.usage().pool;
      return pool.live_slots.units + pool.snapshot_slots.units;
    };

    Collected running, returning;
    submit(session, running, 1, 100);
    while (tier.stats().fetched == 0 || engine.usage().steps_ahead == 0) engine.step();
    const std::int64_t slots_before = slots(), fetched_before = tier.stats().fetched;
    submit(session, returning, 0);
    int beside_copy = 0;
    while (tier.stats().fetched == fetched_before) {
      const std::int64_t steps = engine.usage().steps;
      engine.step();
      CHECK(returning.tokens.empty());
      // The room is held from the moment when the first unit is sent to it.
      const bool is_coming = tier.pending() == 1 && slots() > slots_before;
      if (is_coming) beside_copy += static_cast<int>(engine.usage().steps - steps);
      REQUIRE(running.tokens.empty());
    }
    CHECK(beside_copy > 0);
    while (!engine.idle()) engine.step();
    CHECK(running.tokens == running_alone);
    CHECK(returning.tokens == expected);
    CHECK(engine.usage().tier_waits == 2);
    CHECK(tier.stats().late == 0);
  }

  TEST_CASE("--host-tier with --disk-tier: the same answers, and one tier for both") {
    const Quiet quiet;
    const TemporaryFolder folder;
    const ModelOptions options = options_for("granite-moe-nope");
    const TierFlags flags = {
        .disk_tier = 12U << 20, .disk_tier_folder = folder.path().string(), .host_tier = 1U << 20};
    SessionShape tiered = shape;
    tiered.host_tier_bytes = check_tiers(flags, resolve(options, {}));
    constexpr int prompts = 6;
    std::vector<std::vector<TokenId>> computed;
    Session session = Session::open(resolve(options, {}), tiered);
    add_tiers(session, flags, {});
    SnapshotTier& tier = *session.engine().tier();
    CHECK(tier_text(&tier).starts_with("host and disk tier: "));
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < prompts; ++i) {
        const std::vector<TokenId> answer = answer_of(session, i);
        if (round == 0) computed.push_back(answer);
        CHECK(answer == computed[static_cast<std::size_t>(i)]);
        while (session.engine().prefixes().evict()) {
        }
        tier.drain();
      }
    }
    const TierStats stats = tier.stats();
    CHECK(stats.fetched == prompts);
    CHECK(stats.late == 0);
    CHECK(stats.damaged == 0);
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

}  // namespace session_memory_test
