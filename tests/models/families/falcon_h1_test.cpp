#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace falcon_h1_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* name = "falcon-h1-0.5b";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(name, {{key, value}}); });
}

const Ssd& ssd(const Plan& plan) { return std::get<Ssd>(plan.layers[0].blocks[0].parts.at(0)); }
const Attention& attention(const Plan& plan) {
  return std::get<Attention>(plan.layers[0].blocks[0].parts.at(1));
}
const Mlp& mlp(const Plan& plan) { return std::get<Mlp>(plan.layers[0].blocks[1].parts.at(0)); }

}  // namespace

TEST_SUITE("models/families/falcon_h1") {
  TEST_CASE("Mamba-2 and attention side by side in every layer, then a feed-forward") {
    const Plan plan = plan_of(name);
    REQUIRE(plan.layers.size() == 36);
    for (const Layer& layer : plan.layers) {
      REQUIRE(layer.blocks.size() == 2);
      REQUIRE(layer.blocks[0].parts.size() == 2);
      CHECK(std::holds_alternative<Ssd>(layer.blocks[0].parts[0]));
      CHECK(std::holds_alternative<Attention>(layer.blocks[0].parts[1]));
      REQUIRE(layer.blocks[1].parts.size() == 1);
    }
    CHECK(ssd(plan).inner() == 1536);
    CHECK(ssd(plan).gate == SsdGate::gate_only);
    CHECK(attention(plan).rope->rotary_dim() == 64);
    CHECK(attention(plan).rope->theta == 1e11);
    CHECK(mlp(plan).hidden == 2048);
  }

  TEST_CASE("every multiplier has its place") {
    const Plan plan = plan_of(name, {{"attention_in_multiplier", "2.0"}});
    CHECK(plan.embedding_scale == doctest::Approx(5.656854));
    CHECK(plan.logits_scale == 0.0390625F);
    // 64^-0.5, the input's twice, the keys'; the input's also reaches the values.
    CHECK(attention(plan).scale == 0.125F * 4 * 0.390625F);
    CHECK(attention(plan).output_scale == 2 * 0.9375F);
    const auto& scales = ssd(plan).projection_scales;
    CHECK(scales[0] == doctest::Approx(1.25 * 0.35355));
    CHECK(scales[1] == 1.25F * 0.25F);
    CHECK(scales[3] == 1.25F * 0.5F);
    CHECK(ssd(plan).output_scale == doctest::Approx(0.235702));
    CHECK(mlp(plan).gate_scale == doctest::Approx(0.883883));
    CHECK(mlp(plan).output_scale == 0.5859375F);
  }

  TEST_CASE("absent or null multipliers are one") {
    std::vector<Edit> edits;
    for (const char* key : {"embedding_multiplier", "lm_head_multiplier", "attention_in_multiplier",
                            "attention_out_multiplier", "key_multiplier", "ssm_in_multiplier",
                            "ssm_out_multiplier"}) {
      edits.push_back({key, ""});
    }
    edits.push_back({"ssm_multipliers", "null"});
    edits.push_back({"mlp_multipliers", "null"});
    const Plan plan = plan_of(name, edits);
    CHECK(plan.embedding_scale == 1.0F);
    CHECK(plan.logits_scale == 1.0F);
    CHECK(attention(plan).scale == 0.125F);
    CHECK(attention(plan).output_scale == 1.0F);
    CHECK(ssd(plan).projection_scales == std::array<float, 5>{1, 1, 1, 1, 1});
    CHECK(ssd(plan).output_scale == 1.0F);
    CHECK(mlp(plan).gate_scale == 1.0F);
    CHECK(mlp(plan).output_scale == 1.0F);
  }

  TEST_CASE("norm and gate: none, or in either order, which is norm first where nothing says so") {
    const auto gate = [](const char* norm, const char* first) {
      return ssd(plan_of(name, {{"mamba_rms_norm", norm}, {"mamba_norm_before_gate", first}})).gate;
    };
    CHECK(gate("", "") == SsdGate::gate_only);
    CHECK(gate("false", "true") == SsdGate::gate_only);
    CHECK(gate("true", "false") == SsdGate::gate_then_norm);
    CHECK(gate("true", "true") == SsdGate::norm_then_gate);
    CHECK(gate("true", "") == SsdGate::norm_then_gate);
  }

  TEST_CASE("the width of the mixer: mamba_d_ssm, or with null mamba_expand x hidden_size") {
    CHECK(ssd(plan_of(name, {{"mamba_d_head", "\"auto\""}})).head_dim == 64);
    const Plan expanded = plan_of(name, {{"mamba_d_ssm", "null"}, {"mamba_n_heads", "32"}});
    CHECK(ssd(expanded).inner() == 2048);
    CHECK(contains(error_of("mamba_d_ssm", "null"), "mamba_expand x hidden_size"));
    CHECK(contains(error_of("mamba_d_ssm", "1024"), "mamba_d_ssm"));
    // Absent it is 1024, as in transformers.
    CHECK(contains(error_of("mamba_d_ssm", ""), "mamba_d_ssm"));
  }

  TEST_CASE("what is not supported is named") {
    for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"}) {
      CHECK(contains(error_of(key, "true"), key));
    }
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "\"gelu\""));
    CHECK(contains(error_of("key_multiplier", "0"), "key_multiplier: must be above 0, is 0"));
    CHECK(
        contains(error_of("ssm_multipliers", "[1,1,1]"), "ssm_multipliers: has 3 numbers, not 5"));
    CHECK(
        contains(error_of("ssm_multipliers", "[1,1,-1,1,1]"), "ssm_multipliers: must be numbers"));
    CHECK(
        contains(error_of("mlp_multipliers", "[1,1,1]"), "mlp_multipliers: has 3 numbers, not 2"));
  }
}

}  // namespace falcon_h1_test
