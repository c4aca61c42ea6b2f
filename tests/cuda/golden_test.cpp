#include <optional>

#include "tests/models/golden.h"
#include "tests/support/level.h"

namespace cuda_golden_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

/// One of each family, with experts where it has some.
std::vector<std::string> chosen_fixtures() {
  if (hyb::testing::is_full_level()) return fixtures();
  return {"bamba-1",
          "falcon-h1-groups",
          "falcon-h1-plain",
          "granite-moe-rope-untied",
          "lfm2-moe",
          "nemotron-latent",
          "qwen3-next",
          "qwen3_5-moe",
          "qwen3-next-fp8",
          "nemotron-fp8",
          "qwen3-next-f16",
          "gpt-oss",
          "granite-swa",
          "gemma2",
          "gemma3",
          "gemma4-shared",
          "lfm3",
          "ministral3",
          "llama4",
          "cohere2",
          "gemma4-moe",
          "gemma3n",
          "olmo-hybrid",
          "minimax",
          "mamba2",
          "mamba",
          "falcon-mamba",
          "jamba",
          "kimi-linear",
          "zamba2",
          "zamba2-odd"};
}

Loaded on_card(const Golden& golden, const GeometryOptions& options, bool batch_invariant) {
  return Loaded(golden.folder, options, kernels::Device::cuda,
                {.threads = 1, .isa = {}, .batch_invariant = batch_invariant});
}
Loaded on_card(const Golden& golden, DType activation, bool batch_invariant,
               std::optional<DType> kv = {}) {
  return on_card(golden, GeometryOptions{.load = {.activation = activation}, .kv = kv},
                 batch_invariant);
}

/// The first tokens of the main prompt in one step, then tokens of the answer one by one.
struct Length {
  std::size_t prompt = 24, answer = 8;
};

std::vector<TokenId> greedy(Loaded& loaded, std::span<const TokenId> prompt, std::size_t count) {
  const auto vocab = static_cast<std::size_t>(loaded.model.plan.vocab);
  const std::vector<float> logits = loaded.run(prompt, 0);
  auto position = static_cast<std::int32_t>(prompt.size());
  std::vector<TokenId> answer = {likeliest(std::span(logits).last(vocab))};
  while (answer.size() < count) {
    const std::vector<TokenId> last = {answer.back()};
    answer.push_back(likeliest(loaded.run(last, position++)));
  }
  return answer;
}

}  // namespace

TEST_SUITE("cuda/golden") {
  TEST_CASE("f32 logits and greedy tokens are those of transformers") {
    for (const std::string& name : chosen_fixtures()) {
      CAPTURE(name);
      const Golden golden(name);
      Loaded loaded = on_card(golden, DType::f32, false);
      const auto vocab = static_cast<std::size_t>(loaded.model.plan.vocab);
      const std::size_t main = golden.json["main_prompt"].get<std::size_t>();
      const std::vector<TokenId>& prompt = golden.prompts[main];
      const std::size_t tokens = std::min(prompt.size(), Length().prompt);
      const std::vector<float> expected = golden.values("logits." + std::to_string(main));
      Distance distance{vocab};
      distance.add(loaded.run(std::span(prompt).first(tokens), 0),
                   std::span(expected).first(tokens * vocab));
      MESSAGE(name, " f32: ", distance.relative_max());
      CHECK(distance.relative_max() <= 1e-4);
      std::vector<TokenId> answer = Golden::ids(golden.json["greedy"]);
      answer.resize(Length().answer);
      CHECK(greedy(loaded, prompt, Length().answer) == answer);
      CHECK(loaded.runner.graphs_recorded() == 1);
    }
  }

  TEST_CASE("bf16 logits are as near to f32 as those of transformers in bf16") {
    for (const std::string& name : chosen_fixtures()) {
      const Golden golden(name);
      const double theirs = golden.json["bf16_distance"]["middle_row"].get<double>();
      for (const bool batch_invariant : {false, true}) {
        CAPTURE(name);
        CAPTURE(batch_invariant);
        Loaded loaded = on_card(golden, DType::bf16, batch_invariant);
        const double ours = distance_of_all_prompts(loaded, golden).middle_row();
        MESSAGE(name, " bf16: middle row's ratio ", ours / theirs);
        CHECK(ours <= 1.5 * theirs);
      }
    }
  }

  TEST_CASE("weights of 12 bits give the logits of bf16, bit for bit") {
    const Golden golden("granite-moe-nope");
    const auto prompt = std::span(golden.prompts.back()).first(20);  // more than a small batch
    const auto next = std::span(golden.prompts.back()).subspan(prompt.size(), 1);
    const auto position = static_cast<std::int32_t>(prompt.size());
    for (const bool batch_invariant : {false, true}) {
      CAPTURE(batch_invariant);
      Loaded plain = on_card(golden, {.load = {.activation = DType::bf16}}, batch_invariant),
             narrow = on_card(golden, {.load = {.activation = DType::bf16, .lossless = true}},
                              batch_invariant);
      CHECK(narrow.run(prompt, 0) == plain.run(prompt, 0));
      CHECK(narrow.run(next, position) == plain.run(next, position));
      const std::size_t counted =
          packed_bytes(narrow.model.plan, kernels::Device::cuda, narrow.model.geometry.load);
      CHECK(narrow.model.weights.packed_bytes < plain.model.weights.packed_bytes);
      CHECK(static_cast<double>(narrow.model.weights.packed_bytes) <
            1.02 * static_cast<double>(counted));
    }
  }

  TEST_CASE("f32 logits over pages of F8_E4M3 are the CPU's") {
    for (const std::string name : {"granite-moe-rope-untied", "qwen3_5-moe"}) {
      CAPTURE(name);
      const Golden golden(name);
      Loaded card = on_card(golden, DType::f32, false, DType::f8_e4m3);
      Loaded cpu(golden.folder, {.load = {.activation = DType::f32}, .kv = DType::f8_e4m3},
                 kernels::Isa::plain);
      Loaded exact(golden.folder, DType::f32, kernels::Isa::plain);
      const std::vector<TokenId>& prompt =
          golden.prompts[golden.json["main_prompt"].get<std::size_t>()];
      const std::span<const TokenId> tokens = std::span(prompt).first(Length().prompt);
      const std::vector<float> expected = cpu.run(tokens, 0);
      const auto vocab = static_cast<std::size_t>(cpu.model.plan.vocab);
      Distance of_card{vocab}, of_pages{vocab};
      of_card.add(card.run(tokens, 0), expected);
      of_pages.add(exact.run(tokens, 0), expected);
      MESSAGE(name, " kv fp8: card ", of_card.relative_max(), ", pages ", of_pages.relative_max());
      CHECK(of_pages.relative_max() > 1e-3);
      CHECK(of_card.relative_max() <= 1e-3);
    }
  }
}

}  // namespace cuda_golden_test
