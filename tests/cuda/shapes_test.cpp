#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/models/golden.h"

namespace shapes_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

/// A model with the head sizes of the published ones, so that it takes the routes that they take:
/// matrix instructions, chunks of the recurrence, experts by tiles. Few layers, narrow.
constexpr const char* config_text = R"({
  "model_type": "granitemoehybrid", "hidden_size": 128, "num_attention_heads": 4,
  "num_key_value_heads": 2, "mamba_n_heads": 4, "mamba_d_head": 64, "mamba_n_groups": 1,
  "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 128,
  "mamba_conv_bias": true, "mamba_proj_bias": false, "num_local_experts": 8,
  "num_experts_per_tok": 2, "intermediate_size": 64, "shared_intermediate_size": 64,
  "position_embedding_type": "nope", "rms_norm_eps": 1e-05, "tie_word_embeddings": true,
  "vocab_size": 256, "max_position_embeddings": 512, "torch_dtype": "bfloat16",
  "hidden_act": "silu", "attention_bias": false, "head_dim": 64, "num_hidden_layers": 2,
  "layer_types": ["mamba", "attention"], "embedding_multiplier": 1.0,
  "attention_multiplier": 0.125, "residual_multiplier": 0.5, "logits_scaling": 1.0})";

Loaded load(kernels::Device device, DType activation, bool batch_invariant = false,
            const GraphOptions& graphs = {}) {
  const auto make = [&](kernels::Queue& queue) {
    return random_model(queue, Config::from_text(config_text, "a test"), 7,
                        {.load = {.activation = activation}});
  };
  return Loaded(make, device, {.threads = 2, .isa = {}, .batch_invariant = batch_invariant},
                graphs);
}

std::vector<TokenId> some_tokens(std::int32_t count) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(TokenId{(i * 37 + i * i) % 256});
  return tokens;
}

/// Logits after every token, which are run in steps of several, then one by one.
std::vector<float> logits_of(Loaded& loaded, std::initializer_list<std::int32_t> steps = {170}) {
  constexpr std::int32_t all_tokens = 174;
  const std::vector<TokenId> tokens = some_tokens(all_tokens);
  std::vector<float> all;
  std::int32_t position = 0;
  const auto run = [&](std::int32_t count) {
    const std::vector<float> rows =
        loaded.run(std::span(tokens).subspan(static_cast<std::size_t>(position),
                                             static_cast<std::size_t>(count)),
                   position);
    all.insert(all.end(), rows.begin(), rows.end());
    position += count;
  };
  for (const std::int32_t step : steps) run(step);
  while (position < all_tokens) run(1);
  return all;
}

double middle(const std::vector<float>& ours, const std::vector<float>& expected) {
  Distance distance{256};
  distance.add(ours, expected);
  return distance.middle_row();
}

}  // namespace

TEST_SUITE("cuda/shapes") {
  TEST_CASE("in the shapes of published models logits are as near to f32 as the CPU's") {
    Loaded exact = load(kernels::Device::cpu, DType::f32),
           cpu = load(kernels::Device::cpu, DType::bf16);
    const std::vector<float> expected = logits_of(exact);
    const double bound = 1.5 * middle(logits_of(cpu), expected);
    for (const bool batch_invariant : {false, true}) {
      CAPTURE(batch_invariant);
      Loaded card = load(kernels::Device::cuda, DType::bf16, batch_invariant);
      const double distance = middle(logits_of(card), expected);
      MESSAGE("middle row by 1.5 times the CPU's: ", distance / bound);
      CHECK(distance <= bound);
    }
  }

  TEST_CASE("batch-invariant: no cut changes a bit, and whole prompts are as tokens one by one") {
    Loaded card = load(kernels::Device::cuda, DType::bf16, true);
    const std::vector<float> whole = logits_of(card);
    CHECK(logits_of(card, {64, 64, 42}) == whole);
    CHECK(logits_of(card, {3, 129, 9, 1, 7}) == whole);
    CHECK(logits_of(card, {100}) == whole);
  }

  TEST_CASE("graphs change no bit, and a shape that comes again is recorded once") {
    const GraphOptions choices[] = {{.decode = false, .mixed = false},
                                    {.decode = false, .mixed = true},
                                    {.decode = true, .mixed = false},
                                    {.decode = true, .mixed = true}};
    std::vector<float> expected;
    for (const GraphOptions& graphs : choices) {
      CAPTURE(graphs.decode);
      CAPTURE(graphs.mixed);
      Loaded card = load(kernels::Device::cuda, DType::bf16, false, graphs);
      const std::vector<float> first = logits_of(card);
      if (expected.empty()) expected = first;
      CHECK(first == expected);
      CHECK(logits_of(card) == expected);
      CHECK(card.runner.graphs_recorded() == (graphs.decode ? 1 : 0) + (graphs.mixed ? 1 : 0));
    }
  }

  TEST_CASE("a runner changes its mode between steps: no bit changes, recordings begin again") {
    Loaded card = load(kernels::Device::cuda, DType::bf16, false, {.decode = true, .mixed = false});
    const std::vector<float> expected = logits_of(card);
    const std::int64_t replayed = card.runner.graphs_replayed();
    REQUIRE(replayed > 0);
    card.runner.set_graphs({.decode = false, .mixed = false});
    CHECK(logits_of(card) == expected);
    CHECK(card.runner.graphs_replayed() == replayed);
    card.runner.set_graphs({.decode = true, .mixed = false});
    CHECK(logits_of(card) == expected);
    CHECK(card.runner.graphs_recorded() == 2);
    CHECK(card.runner.graphs_replayed() == 2 * replayed);
  }
}

}  // namespace shapes_test
