#include "tests/models/verify_steps.h"
#include "tests/support/level.h"

namespace cuda_drafts_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

enum class Drafting { none, own_layer, eagle3, dflash };

struct Where {
  kernels::Device device = kernels::Device::cuda;
  DType activation = DType::bf16;
};

DraftWorld world_of(const std::string& name, bool is_flat, const GraphOptions& graphs,
                    Drafting drafting, bool batch_invariant, const Where& where = {}) {
  return DraftWorld(
      [&](kernels::Queue& queue) {
        TensorFiles files(golden_folder / name);
        std::optional<HeadFolder> head;
        if (drafting == Drafting::eagle3 || drafting == Drafting::dflash) {
          const std::string end = drafting == Drafting::dflash ? "-dflash" : "";
          const std::filesystem::path folder = tests_folder() / "heads" / (name + end);
          head.emplace(Config::from_folder(folder), TensorFiles(folder));
        }
        return load_model(queue, Config::from_folder(golden_folder / name), files,
                          {.load = {.activation = where.activation},
                           .with_drafts = drafting == Drafting::own_layer},
                          {}, head ? &*head : nullptr);
      },
      where.device, {.threads = 1, .isa = {}, .batch_invariant = batch_invariant}, is_flat, graphs);
}

void check_world(const std::string& name, bool is_flat, const GraphOptions& graphs, unsigned seed,
                 Drafting drafting = Drafting::none) {
  CAPTURE(name);
  DraftWorld world = world_of(name, is_flat, graphs, drafting, true);
  CHECK(drafts_change_nothing(world, seed, drafts_sampling()));
  CHECK((world.runner.graphs_replayed() > 0) == (graphs.decode || graphs.mixed));
}

constexpr GraphOptions eager = {.decode = false, .mixed = false};
constexpr GraphOptions without_prompts = {.decode = true, .mixed = false};

}  // namespace

TEST_SUITE("cuda/drafts") {
  TEST_CASE("batch-invariant: answers and states with drafts are those of plain decoding") {
    unsigned seed = 3;
    std::vector<std::string> names = {"granite-dense-rope", "qwen3_5-dense", "lfm2-dense"};
    if (hyb::testing::is_full_level()) names = fixtures();
    for (const std::string& name : names) {
      check_world(name, seed % 2 == 0, {}, seed);
      ++seed;
    }
    check_world("granite-attention-only", true, eager, 1);
    check_world("granite-attention-only", false, without_prompts, 2);
  }

  TEST_CASE("batch-invariant: with a draft layer, too, whose guesses are those without drafts") {
    check_world("qwen3_5-dense", true, {}, 5, Drafting::own_layer);
    if (!hyb::testing::is_full_level()) return;
    check_world("nemotron-latent", false, without_prompts, 7, Drafting::own_layer);
  }

  TEST_CASE("batch-invariant: with an EAGLE-3 head, whose guesses are those without drafts") {
    check_world("llama-3", false, without_prompts, 7, Drafting::eagle3);
    if (!hyb::testing::is_full_level()) return;
    check_world("granite-odd", true, {}, 5, Drafting::eagle3);
  }

  TEST_CASE("a verify step of a size that comes again is replayed, and no bit changes") {
    // Not batch-invariant: where it were padded otherwise, some bits would be others.
    for (const char* const name : {"granite-dense-rope", "qwen3_5-dense"}) {
      CAPTURE(name);
      const bool has_layer = std::string(name) == "qwen3_5-dense";
      const Drafting drafting = has_layer ? Drafting::own_layer : Drafting::none;
      DraftWorld launched = world_of(name, true, eager, drafting, false),
                 recorded = world_of(name, true, without_prompts, drafting, false);
      VerifySteps expected(launched, drafts_sampling(), 2), got(recorded, drafts_sampling(), 2);
      constexpr std::int64_t times = 3;
      std::int64_t steps = 0;
      for (const std::int32_t drafts : {1, 3, 5, 7}) {
        const std::vector<std::int32_t> counts(2, drafts);
        for (int i = 0; i < times; ++i) CHECK(got.run(counts) == expected.run(counts));
        ++steps;
      }
      CHECK(recorded.runner.graphs_recorded() == steps);
      CHECK(recorded.runner.graphs_replayed() == (times - 1) * steps);
      CHECK(launched.runner.graphs_recorded() == 0);
    }
  }

  TEST_CASE("all passes of a draft layer are one recording, and no guess changes") {
    std::vector<std::tuple<std::string, Drafting, bool>> cases = {
        {"llama-3", Drafting::eagle3, true}};  // hidden states in pages
    if (hyb::testing::is_full_level()) {       // and in slots
      cases.emplace_back("qwen3_5-dense", Drafting::own_layer, false);
      cases.emplace_back("granite-odd", Drafting::eagle3, false);
    }
    for (const auto& [name, drafting, is_flat] : cases) {
      CAPTURE(name);
      DraftWorld launched = world_of(name, is_flat, eager, drafting, false),
                 recorded = world_of(name, is_flat, without_prompts, drafting, false);
      VerifySteps expected(launched, drafts_sampling(), 3), got(recorded, drafts_sampling(), 3);
      constexpr std::int64_t times = 3;
      std::int64_t graphs = 0;
      for (const std::vector<std::int32_t>& counts :
           std::vector<std::vector<std::int32_t>>{{3, 3}, {1, 5, 3}}) {
        for (int i = 0; i < times; ++i) {
          const auto guesses = got.draft(counts);
          CHECK(guesses == expected.draft(counts));
          for (std::size_t of = 0; of < counts.size(); ++of) {
            CHECK(std::ssize(guesses[of]) == counts[of]);
          }
          CHECK(got.run(counts) == expected.run(counts));
        }
        graphs += 2;  // one of the guesses, one of the step
      }
      CHECK(recorded.runner.graphs_recorded() == graphs);
      CHECK(recorded.runner.graphs_replayed() == (times - 1) * graphs);
    }
  }

  TEST_CASE("f32: all guesses of a card are the CPU's, those of later passes too") {
    // What random text is guessed to be is far from sure: another position shows.
    const SamplingParams greedy = {{.logprobs = 0}};
    std::vector<std::tuple<std::string, Drafting>> cases = {{"qwen3_5-dense", Drafting::own_layer},
                                                            {"llama-3", Drafting::eagle3}};
    if (hyb::testing::is_full_level()) cases.emplace_back("llama-3", Drafting::dflash);
    for (const auto& [name, drafting] : cases) {
      CAPTURE(name);
      DraftWorld cpu = world_of(name, true, eager, drafting, false,
                                {.device = kernels::Device::cpu, .activation = DType::f32}),
                 card = world_of(name, true, eager, drafting, false, {.activation = DType::f32});
      VerifySteps expected(cpu, greedy, 3), got(card, greedy, 3);
      for (const std::vector<std::int32_t>& counts :
           std::vector<std::vector<std::int32_t>>{{7, 7, 7}, {1, 5, 3}, {7, 3, 4}}) {
        const auto right = expected.draft(counts), guesses = got.draft(counts);
        REQUIRE(guesses.size() == counts.size());
        for (std::size_t of = 0; of < counts.size(); ++of) {
          REQUIRE(std::ssize(guesses[of]) == counts[of]);
          for (std::size_t at = 0; at < guesses[of].size(); ++at) {
            CHECK(guesses[of][at].token == right[of][at].token);
            CHECK(guesses[of][at].logprob == doctest::Approx(right[of][at].logprob).epsilon(1e-4));
          }
        }
        expected.run(counts);
        got.run(counts);
      }
    }
  }

  TEST_CASE("verify steps of all numbers of drafts share a few recordings") {
    std::vector<std::string> names = {"granite-attention-only"};
    if (hyb::testing::is_full_level()) names.emplace_back("granite-dense-rope");
    for (const std::string& name : names) {
      CAPTURE(name);
      DraftWorld launched = world_of(name, true, eager, Drafting::none, false),
                 recorded = world_of(name, true, without_prompts, Drafting::none, false);
      VerifySteps expected(launched, drafts_sampling(), 4), got(recorded, drafts_sampling(), 4);
      std::mt19937 random(3);
      std::int64_t steps = 0;
      for (; got.have_room() && steps < 24; ++steps) {
        constexpr std::array<std::int32_t, 5> choices = {0, 1, 3, 5, 7};
        std::vector<std::int32_t> counts;
        for (int i = 0; i < 4; ++i) counts.push_back(choices[random() % choices.size()]);
        CHECK(got.run(counts) == expected.run(counts));
      }
      CHECK(steps == 24);
      // 4 sequences have 1 to 8 tokens each on average.
      CHECK(recorded.runner.graphs_recorded() <= 8);
      CHECK(recorded.runner.graphs_replayed() >= steps - 8);
    }
  }

  TEST_CASE("batch-invariant: with a DFlash head, whose guesses are those without drafts") {
    check_world("llama-3", false, without_prompts, 7, Drafting::dflash);
    if (!hyb::testing::is_full_level()) return;
    check_world("qwen3_5-text", true, {}, 5, Drafting::dflash);
  }
}

}  // namespace cuda_drafts_test
