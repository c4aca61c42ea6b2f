#include "models/runner.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <future>
#include <optional>
#include <random>
#include <span>

#include "core/base/error.h"
#include "core/memory/pool/memory_pool.h"
#include "models/memory_layout.h"
#include "tests/models/loaded.h"

namespace runner_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

constexpr std::int32_t pages_per_sequence = 8;
constexpr std::int32_t sequences = 4;
const SamplingParams greedy;

/// A runner with room for a few sequences; sequence i has slots 2i and 2i+1 and its own pages.
struct Bench {
  Bench(const std::string& name, DType activation, int threads)
      : queue(kernels::Device::cpu, {.threads = threads, .isa = {}}),
        model([&] {
          TensorFiles files(golden_folder / name);
          return load_model(queue, Config::from_folder(golden_folder / name), files,
                            {.load = {.activation = activation}});
        }()),
        runner(
            queue, model.plan, model.weights, model.geometry,
            {.memory = flat_memory(model.geometry, sequences * pages_per_sequence, 2 * sequences),
             .step_tokens = 512,
             .sequences_max = 512,
             .positions_max = pages_per_sequence * page_tokens_default,
             .vocab_used = model.plan.vocab}) {
    const MemoryLayout layout = runner.capacity().memory;
    first_slot = layout.first_unit(layout.slot_view());
    for (std::int32_t sequence = 0; sequence < sequences; ++sequence) {
      std::vector<PageTable>& tables = tables_of.emplace_back(layout.groups.size());
      for (std::int32_t i = 0; i < pages_per_sequence && !tables.empty(); ++i) {
        tables[0].push_back(PageId{sequence * pages_per_sequence + i});
      }
    }
  }

  Span span(std::int32_t sequence, std::span<const TokenId> tokens, std::int32_t position,
            SlotId read, SlotId write) {
    Span made = {.tokens = tokens,
                 .position = position,
                 .tables = tables_of[static_cast<std::size_t>(sequence)],
                 .read_slot = position == 0 ? no_slot : slot(read),
                 .write_slot = slot(write),
                 .samples = {}};
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(tokens.size()); ++i) {
      made.samples.push_back(
          {.token = i, .params = &greedy, .draw = 0, .history = {}, .prompt_tokens = 0});
    }
    return made;
  }

  /// The number in the layout of a slot that is counted from 0.
  SlotId slot(SlotId at) const { return SlotId{first_slot + index(at)}; }

  std::vector<float> run(const std::vector<Span>& spans) {
    return runner.run({.orders = {}, .spans = spans, .keep_logits = true}).logits;
  }

  kernels::Queue queue;
  Model model;
  ModelRunner runner;
  std::vector<std::vector<PageTable>> tables_of;
  std::int32_t first_slot = 0;
};

std::int32_t count_of(std::span<const TokenId> tokens) {
  return static_cast<std::int32_t>(tokens.size());
}

std::vector<TokenId> random_tokens(std::mt19937& random, std::int32_t count, std::int32_t vocab) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < count; ++i) {
    tokens.push_back(TokenId{static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab))});
  }
  return tokens;
}

/// All logits of a prompt run in pieces of random length, reading one slot and writing the other.
std::vector<float> run_in_pieces(Bench& bench, std::span<const TokenId> tokens,
                                 std::mt19937& random) {
  std::vector<float> logits;
  SlotId read{0};
  SlotId write{1};
  for (std::size_t start = 0; start < tokens.size();) {
    const std::size_t count = std::min<std::size_t>(tokens.size() - start, 1 + random() % 40);
    const auto piece = bench.run({bench.span(0, tokens.subspan(start, count),
                                             static_cast<std::int32_t>(start), read, write)});
    logits.insert(logits.end(), piece.begin(), piece.end());
    std::swap(read, write);
    start += count;
  }
  return logits;
}

/// Runs a span of a pool's sequence after all orders that are due.
std::vector<float> run_next(ModelRunner& runner, MemoryPool& pool, Memory& memory,
                            std::span<const TokenId> tokens) {
  REQUIRE(memory.reserve(count_of(tokens)));
  Span span = {.tokens = tokens,
               .position = memory.length(),
               .tables = memory.tables(),
               .read_slot = memory.read_slot(),
               .write_slot = memory.write_slot(),
               .samples = {}};
  for (std::int32_t i = 0; i < count_of(tokens); ++i) {
    span.samples.push_back(
        {.token = i, .params = &greedy, .draw = 0, .history = {}, .prompt_tokens = 0});
  }
  std::vector<float> logits =
      runner.run({.orders = pool.take_orders(), .spans = {span}, .keep_logits = true}).logits;
  memory.keep(count_of(tokens));
  return logits;
}

/// All logits of the tokens on fixed pools, in one span.
std::vector<float> run_fixed(kernels::Queue& queue, const Model& model,
                             std::span<const TokenId> tokens) {
  const std::int32_t count = count_of(tokens);
  ModelRunner runner(
      queue, model.plan, model.weights, model.geometry,
      {.memory =
           flat_memory(model.geometry, (count + page_tokens_default - 1) / page_tokens_default, 1),
       .step_tokens = count,
       .sequences_max = count,
       .positions_max = count,
       .vocab_used = model.plan.vocab});
  MemoryPool pool(runner.capacity().memory);
  std::optional<Memory> memory = pool.start();
  return run_next(runner, pool, *memory, tokens);
}

/// A pool of few superblocks goes from slots of many short sequences to the pages of a long one and
/// back; whether all logits are those of fixed pools.
bool outlives_changes_of_owner(kernels::Queue& queue, const Model& model,
                               const kernels::SuperblockMapOptions& mapping) {
  const Geometry& geometry = model.geometry;
  const ModelMemoryLayout memory = memory_layout_of(
      geometry, {.pool_bytes = 6 * (geometry.slot_bytes + 8 * geometry.page_bytes), .flat = {}});
  const std::int32_t length =
      2 * page_tokens_default * memory.layout.groups[0].pages_per_superblock + 10;
  ModelRunner runner(queue, model.plan, model.weights, geometry,
                     {.memory = memory,
                      .step_tokens = length,
                      .sequences_max = length,
                      .positions_max = length,
                      .vocab_used = model.plan.vocab,
                      .mapping = mapping});
  MemoryPool pool(memory.layout);
  std::mt19937 random(13);
  bool same = true;
  for (int round = 0; round < 2; ++round) {
    const auto tokens = random_tokens(random, length, model.plan.vocab);
    const std::span<const TokenId> all(tokens);
    const std::vector<float> expected = run_fixed(queue, model, all);
    const auto matches = [&](const std::vector<float>& logits, std::int32_t token) {
      return std::equal(logits.begin(), logits.end(),
                        expected.begin() + std::ptrdiff_t{token} * model.plan.vocab);
    };
    {
      std::vector<Memory> memories;
      while (std::optional<Memory> next = pool.start()) {
        if (!next->reserve(5)) break;
        memories.push_back(*std::move(next));
      }
      for (Memory& each : memories) {
        same &= matches(run_next(runner, pool, each, all.first(3)), 0);
        same &= matches(run_next(runner, pool, each, all.subspan(3, 2)), 3);
      }
      same &= memories.size() > 2;
    }
    std::optional<Memory> whole = pool.start();
    same &= matches(run_next(runner, pool, *whole, all.first(200)), 0);
    same &= matches(run_next(runner, pool, *whole, all.subspan(200)), 200);
  }
  return same && pool.usage().owner_changes >= 4;
}

}  // namespace

TEST_SUITE("models/runner") {
  TEST_CASE("a prompt cut anywhere, run among others or on other threads gives the same bytes") {
    for (const std::string& name : fixtures()) {
      for (const DType activation : {DType::bf16, DType::f32}) {
        CAPTURE(name);
        CAPTURE(name_of(activation));
        std::mt19937 random(7);
        Bench bench(name, activation, 2);
        const auto tokens = random_tokens(random, 100, bench.model.plan.vocab);
        const std::vector<float> whole =
            bench.run({bench.span(0, tokens, 0, SlotId{0}, SlotId{0})});
        for (int i = 0; i < 4; ++i) CHECK(run_in_pieces(bench, tokens, random) == whole);

        const auto other = random_tokens(random, 37, bench.model.plan.vocab);
        const std::vector<float> among = bench.run({bench.span(1, other, 0, no_slot, SlotId{2}),
                                                    bench.span(0, tokens, 0, no_slot, SlotId{1}),
                                                    bench.span(2, other, 0, no_slot, SlotId{4})});
        const auto vocab = static_cast<std::size_t>(bench.model.plan.vocab);
        const auto first = among.begin() + static_cast<std::ptrdiff_t>(other.size() * vocab);
        CHECK(std::equal(whole.begin(), whole.end(), first));

        Bench alone(name, activation, 1);
        CHECK(alone.run({alone.span(0, tokens, 0, no_slot, SlotId{0})}) == whole);
      }
    }
  }

  TEST_CASE("prompts in a second runner's lane and answers beside them are the same bytes") {
    for (const std::string& name : fixtures()) {
      CAPTURE(name);
      std::mt19937 random(19);
      Bench bench(name, DType::bf16, 1);
      kernels::Queue queue(kernels::Device::cpu, {.threads = 2});
      ModelRunner second(queue, bench.runner);
      const auto prompt = random_tokens(random, 90, bench.model.plan.vocab);
      const auto other = random_tokens(random, 60, bench.model.plan.vocab);
      const std::span<const TokenId> all(prompt);
      const auto whole = bench.run({bench.span(0, all.first(89), 0, no_slot, SlotId{0})});
      const auto last = bench.run({bench.span(0, all.last(1), 89, SlotId{0}, SlotId{1})});
      const auto beside = bench.run({bench.span(1, other, 0, no_slot, SlotId{2})});

      // The first runner steps through another sequence while the lane has the prompt, whose last
      // token it runs then, in the same pages and from the slot that the lane wrote.
      const Step step = {.orders = {},
                         .spans = {bench.span(2, all.first(89), 0, no_slot, SlotId{4})},
                         .keep_logits = true};
      auto lane = std::async(std::launch::async, [&] { return second.run(step); });
      std::vector<float> meanwhile;
      for (std::int32_t i = 0; i < 60; ++i) {
        const SlotId read{6 + i % 2}, write{7 - i % 2};
        const auto logits = bench.run({bench.span(
            3, std::span(other).subspan(static_cast<std::size_t>(i), 1), i, read, write)});
        meanwhile.insert(meanwhile.end(), logits.begin(), logits.end());
      }
      CHECK(lane.get().logits == whole);
      CHECK(meanwhile == beside);
      CHECK(bench.run({bench.span(2, all.last(1), 89, SlotId{4}, SlotId{5})}) == last);
      CHECK(second.workspace_bytes() > 0);
      CHECK(second.pool_bytes() == bench.runner.pool_bytes());
    }
  }

  TEST_CASE("copies of pages and slots replace the originals") {
    std::mt19937 random(11);
    Bench bench("granite-moe-nope", DType::bf16, 2);
    const auto prompt = random_tokens(random, 50, bench.model.plan.vocab);
    const auto rest = random_tokens(random, 20, bench.model.plan.vocab);
    bench.run({bench.span(0, prompt, 0, no_slot, SlotId{0})});
    const auto straight = bench.run({bench.span(0, rest, 50, SlotId{0}, SlotId{1})});

    Step step;
    for (std::int32_t i = 0; i < pages_per_sequence; ++i) {
      step.orders.emplace_back(UnitCopy{ViewId{0}, i, 2 * pages_per_sequence + i});
    }
    const ViewId slots = bench.runner.capacity().memory.slot_view();
    step.orders.emplace_back(
        UnitCopy{slots, index(bench.slot(SlotId{0})), index(bench.slot(SlotId{4}))});
    step.spans = {bench.span(2, rest, 50, SlotId{4}, SlotId{5})};
    step.keep_logits = true;
    CHECK(bench.runner.run(step).logits == straight);
  }

  TEST_CASE("owners that change, however memory follows them, change no byte") {
    using kernels::MapMode;
    const kernels::SuperblockMapOptions every_mapping[] = {
        {.mode = MapMode::flip},
        {.mode = MapMode::flip, .poison = true},
        {.mode = MapMode::flip, .strict = true, .poison = true},
        {.mode = MapMode::remap, .poison = true}};
    for (const char* name : {"granite-moe-nope", "granite-dense-rope"}) {
      CAPTURE(name);
      Bench bench(name, DType::bf16, 2);
      for (const kernels::SuperblockMapOptions& mapping : every_mapping) {
        CHECK(outlives_changes_of_owner(bench.queue, bench.model, mapping));
      }
    }
  }

  TEST_CASE("a step outside the capacity is refused before anything runs") {
    Bench bench("granite-dense-nope", DType::bf16, 1);
    const std::vector<TokenId> bad_token = {TokenId{bench.model.plan.vocab}};
    const std::vector<TokenId> good = {TokenId{1}};
    CHECK_THROWS_AS(bench.run({bench.span(0, bad_token, 0, no_slot, SlotId{0})}), Error);
    CHECK_THROWS_AS(bench.run({bench.span(0, good, 0, no_slot, SlotId{99})}), Error);
    CHECK_THROWS_AS(bench.run({bench.span(0, good, 5000, no_slot, SlotId{0})}), Error);
  }
}

}  // namespace runner_test
