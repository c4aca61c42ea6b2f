#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace jamba_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* name = "jamba-1.5-mini";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(name, {{key, value}}); });
}

}  // namespace

TEST_SUITE("models/families/jamba") {
  TEST_CASE("attention and experts where periods and offsets say so") {
    const Plan plan = plan_of(name);
    REQUIRE(plan.layers.size() == 32);
    for (std::size_t i = 0; i < plan.layers.size(); ++i) {
      REQUIRE(plan.layers[i].blocks.size() == 2);
      CHECK(std::holds_alternative<Attention>(plan.layers[i].blocks[0].parts[0]) == (i % 8 == 4));
      CHECK(std::holds_alternative<Moe>(plan.layers[i].blocks[1].parts[0]) == (i % 2 == 1));
    }
    const auto& s6 = std::get<S6>(plan.layers[0].blocks[0].parts[0]);
    CHECK(s6.channels == 8192);
    CHECK(s6.norms == S6Norms::weighted);
    CHECK(s6.dt_norm_eps == plan.norm_eps);
    CHECK(!std::get<Attention>(plan.layers[4].blocks[0].parts[0]).rope);
    const auto& moe = std::get<Moe>(plan.layers[1].blocks[1].parts[0]);
    CHECK(moe.score == RouterScore::softmax);
    CHECK(!moe.renormalize);
  }

  TEST_CASE("absent keys are those of transformers; one expert is a feed-forward") {
    const Plan plan = plan_of(name);
    for (const char* key :
         {"attn_layer_period", "attn_layer_offset", "expert_layer_period", "expert_layer_offset",
          "num_experts", "num_experts_per_tok", "mamba_d_state", "mamba_d_conv", "mamba_expand",
          "mamba_dt_rank", "mamba_conv_bias"}) {
      CAPTURE(key);
      CHECK(plan_of(name, {{key, ""}}) == plan);
    }
    CHECK(plan_of(name, {{"mamba_dt_rank", "\"auto\""}}) == plan);
    CHECK(!plan_of(name, {{"num_experts", "1"}}).has_experts());
    CHECK(!plan_of("jamba-reasoning-3b").has_experts());
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of("attn_layer_offset", "8"), "must be below attn_layer_period"));
    CHECK(contains(error_of("expert_layer_period", "1"), "must be below expert_layer_period"));
    CHECK(contains(error_of("mamba_proj_bias", "true"), "mamba_proj_bias"));
    CHECK(contains(error_of("mamba_inner_layernorms", "false"), "mamba_inner_layernorms"));
    CHECK(contains(error_of("sliding_window", "128"), "sliding_window"));
    CHECK(contains(error_of("layers_block_type", "[\"mamba\"]"), "layers_block_type"));
    CHECK(contains(error_of("mamba_expand", "65"), "mamba_expand"));
  }
}

}  // namespace jamba_test
