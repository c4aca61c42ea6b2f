#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace granite_hybrid_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of("granite-4.0-h-tiny", {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

const Ssd& ssd(const Plan& plan, std::size_t layer) {
  return std::get<Ssd>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/granite_hybrid") {
  TEST_CASE("the plan of granite-4.0-h-tiny") {
    const Plan plan = plan_of("granite-4.0-h-tiny");
    CHECK(plan.family == "granitemoehybrid");
    CHECK(plan.vocab == 100352);
    CHECK(plan.width == 1536);
    CHECK(plan.norm_eps == 1e-5F);
    CHECK(plan.embedding_scale == 12.0F);
    CHECK(plan.logits_scale == doctest::Approx(1.0 / 6));
    CHECK(plan.tied_head);
    CHECK(plan.weight_dtype == DType::bf16);
    CHECK(plan.state_dtype == DType::f32);
    CHECK(plan.positions_max == 131072);
    CHECK(!plan.has_rope());
    REQUIRE(plan.layers.size() == 40);
    CHECK(attention(plan, 5).heads == 12);
    CHECK(attention(plan, 5).kv_heads == 4);
    CHECK(attention(plan, 5).head_dim == 128);
    CHECK(attention(plan, 5).scale == 0.0078125F);
    CHECK(!attention(plan, 5).rope);
    CHECK(ssd(plan, 0).heads == 48);
    CHECK(ssd(plan, 0).conv_dim() == 3072 + 256);
    CHECK(ssd(plan, 0).norm_groups == 1);
    CHECK(ssd(plan, 39).conv_bias);
    const Moe& moe = std::get<Moe>(plan.layers[5].blocks.at(1).parts.at(0));
    CHECK(attention(plan, 5).output_scale == 0.22F);
    CHECK(ssd(plan, 0).output_scale == 0.22F);
    CHECK(moe.output_scale == 0.22F);
    CHECK(moe.experts == 64);
    CHECK(moe.active == 6);
    CHECK(moe.hidden == 512);
    CHECK(moe.shared_hidden == 1024);
    CHECK(moe.score == RouterScore::softmax_of_selected);
  }

  TEST_CASE("without experts the shared feed-forward is all there is") {
    const Plan plan = plan_of("granite-4.0-h-350m");
    const Mlp& mlp = std::get<Mlp>(plan.layers[0].blocks.at(1).parts.at(0));
    CHECK(mlp.hidden == 2048);
    CHECK(mlp.activation.gated);
    CHECK(attention(plan, 10).head_dim == 64);
  }

  TEST_CASE("old and new spellings make the same plan") {
    const Plan old = plan_of("granite-4.0-h-tiny");
    const std::string types = layer_types(40, {5, 15, 25, 35});
    const std::string renamed =
        layer_types(40, {5, 15, 25, 35}, "full_attention", "linear_attention");
    for (const std::vector<Edit>& edits : std::vector<std::vector<Edit>>{
             {{"layer_types", renamed}},
             {{"layer_types", ""}, {"layers_block_type", types}},
             {{"torch_dtype", ""}, {"dtype", "\"bfloat16\""}},
             {{"mamba_d_head", "\"auto\""}},
             {{"logits_scaling", "6.0"}, {"hidden_size", "1536.0"}},
             {{"time_step_limit", "[0.0, Infinity]"}},
             {{"position_embedding_type", "null"}, {"rope_theta", "10000"}}}) {
      const Plan plan = plan_of("granite-4.0-h-tiny", edits);
      CHECK(plan.layers.size() == old.layers.size());
      CHECK(plan.weight_dtype == old.weight_dtype);
      CHECK(plan.logits_scale == old.logits_scale);
      CHECK(ssd(plan, 0).head_dim == 64);
      CHECK(ssd(plan, 0).shape.dt_max == ssd(old, 0).shape.dt_max);
      CHECK(attention(plan, 35).heads == 12);
      CHECK(!plan.has_rope());
    }
  }

  TEST_CASE("rope only when position_embedding_type says so, from either place") {
    Plan plan = plan_of("granite-4.0-h-tiny",
                        {{"position_embedding_type", "\"rope\""}, {"rope_theta", "5000"}});
    CHECK(plan.has_rope());
    REQUIRE(attention(plan, 5).rope);
    CHECK(attention(plan, 5).rope->rotary_dim() == 128);
    CHECK(attention(plan, 5).rope->theta == 5000.0);
    plan = plan_of("granite-4.0-h-tiny",
                   {{"position_embedding_type", "\"rope\""},
                    {"rope_parameters", R"({"rope_type":"default","rope_theta":7000.0})"}});
    REQUIRE(attention(plan, 5).rope);
    CHECK(attention(plan, 5).rope->theta == 7000.0);
    CHECK(contains(model_error([] {
                     plan_of("granite-4.0-h-tiny", {{"position_embedding_type", "\"rope\""},
                                                    {"rope_scaling", R"({"type":"longrope"})"}});
                   }),
                   "rope_scaling.rope_type: \"longrope\" is not supported"));
    CHECK(contains(error_of("position_embedding_type", "\"alibi\""), "\"alibi\" is not supported"));
  }

  TEST_CASE("a limit of the time step is kept") {
    const Plan plan = plan_of("granite-4.0-h-tiny", {{"time_step_limit", "[0.001, 0.5]"}});
    CHECK(ssd(plan, 0).shape.dt_min == 0.001F);
    CHECK(ssd(plan, 0).shape.dt_max == 0.5F);
    CHECK(contains(error_of("time_step_limit", "[0.5, 0.1]"), "rising order"));
    CHECK(contains(error_of("time_step_limit", "[0.5]"), "two numbers"));
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act: \"gelu\""));
    CHECK(contains(error_of("normalization_function", "\"layernorm\""), "normalization_function"));
    CHECK(contains(error_of("attention_bias", "true"), "attention_bias: true is not supported"));
    CHECK(contains(error_of("mamba_proj_bias", "true"), "mamba_proj_bias"));
    CHECK(contains(error_of("num_hidden_layers", "39"), "40 entries, num_hidden_layers is 39"));
    CHECK(contains(error_of("layer_types", ""), "layer_types: is missing"));
    CHECK(contains(error_of("layer_types", layer_types(40, {3}, "conv")), "entry 3: \"conv\""));
    CHECK(contains(error_of("num_key_value_heads", "5"), "num_key_value_heads, which is 5"));
    CHECK(contains(error_of("num_attention_heads", "7"), "num_attention_heads, which is 7"));
    CHECK(contains(error_of("mamba_n_groups", "5"), "groups, which is 5"));
    CHECK(contains(error_of("mamba_d_head", "32"), "mamba_d_head: is 32"));
    CHECK(contains(error_of("mamba_n_heads", "47"), "mamba_n_heads, which is 47"));
    CHECK(contains(error_of("num_experts_per_tok", "65"), "num_experts_per_tok: is 65"));
    CHECK(contains(error_of("mamba_d_conv", "5"), "mamba_d_conv"));
    for (const char* key : {"logits_scaling", "embedding_multiplier", "attention_multiplier",
                            "residual_multiplier"}) {
      CHECK(contains(error_of(key, "0"), std::string(key) + ": must be above 0, is 0"));
      CHECK(contains(error_of(key, "-1.5"), std::string(key) + ": must be above 0"));
    }
    CHECK(contains(error_of("num_local_experts", ""), "num_local_experts: is missing"));
    CHECK(contains(error_of("shared_intermediate_size", ""), "shared_intermediate_size: is miss"));
    CHECK(contains(error_of("rms_norm_eps", "0"), "rms_norm_eps"));
    CHECK(contains(error_of("hidden_size", ""), "hidden_size: is missing"));
  }

  TEST_CASE("what no op could take is an error before a weight is read") {
    CHECK(error_of("mamba_d_state", "256").empty());
    CHECK(contains(error_of("mamba_d_state", "257"), "is 257, at most 256 is supported"));
    CHECK(error_of("num_local_experts", "4096").empty());
    CHECK(contains(error_of("num_local_experts", "4097"), "is 4097, at most 4096"));
    CHECK(error_of("head_dim", "512").empty());
    CHECK(contains(error_of("head_dim", "514"), "head_dim: is 514, at most 512"));
    CHECK(contains(error_of("head_dim", "65"), "head_dim: must be even, is 65"));
  }
}

}  // namespace granite_hybrid_test
