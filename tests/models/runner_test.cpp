#include "models/runner.h"

#include <doctest/doctest.h>

#include <random>

#include "core/base/error.h"
#include "tests/models/loaded.h"

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
                            {.activation = activation});
        }()),
        runner(
            queue, model.plan, model.weights, model.geometry,
            {.memory = flat_memory(model.geometry, sequences * pages_per_sequence, 2 * sequences),
             .step_tokens = 512,
             .step_rows = 512,
             .positions_max = pages_per_sequence * page_tokens,
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
  for (std::size_t begin = 0; begin < tokens.size();) {
    const std::size_t count = std::min<std::size_t>(tokens.size() - begin, 1 + random() % 40);
    const auto piece = bench.run({bench.span(0, tokens.subspan(begin, count),
                                             static_cast<std::int32_t>(begin), read, write)});
    logits.insert(logits.end(), piece.begin(), piece.end());
    std::swap(read, write);
    begin += count;
  }
  return logits;
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

  TEST_CASE("copies of pages and slots stand for the originals") {
    std::mt19937 random(11);
    Bench bench("granite-moe-nope", DType::bf16, 2);
    const auto prompt = random_tokens(random, 50, bench.model.plan.vocab);
    const auto rest = random_tokens(random, 20, bench.model.plan.vocab);
    bench.run({bench.span(0, prompt, 0, no_slot, SlotId{0})});
    const auto straight = bench.run({bench.span(0, rest, 50, SlotId{0}, SlotId{1})});

    Step step;
    for (std::int32_t i = 0; i < pages_per_sequence; ++i) {
      step.orders.emplace_back(PageCopy{0, PageId{i}, PageId{2 * pages_per_sequence + i}});
    }
    step.orders.emplace_back(SlotCopy{bench.slot(SlotId{0}), bench.slot(SlotId{4})});
    step.spans = {bench.span(2, rest, 50, SlotId{4}, SlotId{5})};
    step.keep_logits = true;
    CHECK(bench.runner.run(step).logits == straight);
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
