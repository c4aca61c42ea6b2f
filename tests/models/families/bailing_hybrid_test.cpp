#include <doctest/doctest.h>

#include "models/geometry.h"
#include "models/weight_index.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace bailing_hybrid_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char *tiny = "ling-3.0-tiny", *flash = "ling-3.0-flash", *older = "ling-2.6-flash";

std::string error_of(const char* model, const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(model, {{key, value}}); });
}

const Part& part(const Plan& plan, std::size_t layer, std::size_t block) {
  return plan.layers.at(layer).blocks.at(block).parts.at(0);
}

}  // namespace

TEST_SUITE("models/families/bailing_hybrid") {
  TEST_CASE("Ling 3.0: decays with a floor, latents with rope and gates, experts of some groups") {
    const Plan plan = plan_of(tiny);
    REQUIRE(plan.layers.size() == 24);
    for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
      CHECK(std::holds_alternative<Mla>(part(plan, layer, 0)) == (layer % 4 == 3));
      CHECK(std::holds_alternative<Mlp>(part(plan, layer, 1)) == (layer == 0));
    }
    const auto& delta = std::get<DeltaNet>(part(plan, 0, 0));
    CHECK(delta.shape.per_channel);
    CHECK(delta.rank == 0);
    CHECK(delta.shape.decay_floor == -5.0F);
    const auto& mla = std::get<Mla>(part(plan, 3, 0));
    CHECK(mla.text().text ==
          "16 heads x 128 + 64, values of 128, latents of 512, queries of 256, rope over 64 dims, "
          "theta 6000000, gate per head");
    CHECK(mla.rope->neighbours);
    const auto& moe = std::get<Moe>(part(plan, 1, 1));
    CHECK(moe.text().text ==
          "128 experts, 8 active, 512 wide, gated silu, of 4 of 8 groups, "
          "shared expert 512 wide");
    CHECK(moe.scale == 2.5F);
    CHECK(plan.positions_max == 131072);
    CHECK(geometry_of(plan).kv_bytes_per_token == 6 * 576 * 2);
  }

  TEST_CASE("a decay without a floor, as kda_safe_gate says") {
    const Plan plan = plan_of(tiny, {{"kda_safe_gate", "false"}});
    CHECK(std::get<DeltaNet>(part(plan, 0, 0)).shape.decay_floor == 0.0F);
  }

  TEST_CASE("limits of gates and ups are those of each layer, of its shared expert another") {
    const Plan plan = plan_of(flash);
    const auto limits = [&](std::size_t layer) {
      const auto& moe = std::get<Moe>(part(plan, layer, 1));
      const auto limit = [](const kernels::Activation& a) { return a.is_limited() ? a.limit : 0; };
      return std::pair(limit(moe.activation),
                       limit(moe.shared_activation.value_or(moe.activation)));
    };
    CHECK(limits(33) == std::pair(0.0F, 0.0F));
    CHECK(limits(34) == std::pair(0.0F, 5.0F));
    CHECK(limits(35) == std::pair(4.0F, 5.0F));
    CHECK(limits(41) == std::pair(4.0F, 7.0F));
  }

  TEST_CASE("layers after the last one are of drafts") {
    const Plan plan = plan_of(flash);
    const auto is_unused = [&](const char* name) {
      return is_known_unused(plan, bailing_hybrid::family, name);
    };
    CHECK(is_unused("model.layers.42.attention.q_proj.weight"));
    CHECK(!is_unused("model.layers.41.attention.q_proj.weight"));
  }

  TEST_CASE("Ling 2.6: lightning attention, known by the absence of a convolution") {
    const Plan plan = plan_of(older);
    const auto& lightning = std::get<Lightning>(part(plan, 0, 0));
    CHECK(lightning.text().text ==
          "lightning attention, 32 heads x 128, q/k norm, rope over 64 dims, "
          "theta 6000000, norm in 4 groups");
    // As of a layer before the first one.
    CHECK(lightning.pace == doctest::Approx(1 + 1 / 31.0 + 1e-5));
    CHECK(std::get<Lightning>(part(plan, 30, 0)).pace == doctest::Approx(2 / 31.0 + 1e-5));
    CHECK(!std::get<Mla>(part(plan, 7, 0)).head_gate);
    const Plan halves = plan_of(older, {{"rope_interleave", "false"}});
    CHECK(!std::get<Mla>(part(halves, 7, 0)).rope->neighbours);
    CHECK(lightning.memory().state->conv_width == 1);
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of(tiny, "short_conv_kernel_size", "5"), "short_conv_kernel_size"));
    CHECK(
        contains(model_error([] {
                   plan_of(tiny, {{"short_conv_kernel_size", "null"}, {"group_norm_size", "null"}});
                 }),
                 "short_conv_kernel_size: is not there"));
    CHECK(contains(error_of(tiny, "kda_lower_bound", "0.5"), "kda_lower_bound: must be below 0"));
    CHECK(contains(error_of(tiny, "no_kda_lora", "false"), "no_kda_lora"));
    CHECK(contains(error_of(tiny, "gated_attention_proj_granularity_type", "\"element_wise\""),
                   "gated_attention_proj_granularity_type"));
    CHECK(contains(error_of(tiny, "rope_interleave", "false"), "rope_interleave"));
    CHECK(contains(error_of(tiny, "num_hidden_layers", "23"), "layer_group_size"));
    CHECK(contains(error_of(tiny, "num_key_value_heads", "8"), "num_key_value_heads: is not 16"));
    CHECK(contains(error_of(tiny, "router_type", "\"MultiRouter\""), "router_type"));
    CHECK(contains(error_of(tiny, "rope_scaling", R"({"type":"linear","factor":2})"),
                   "rope_scaling: linear x 2 is not supported"));
    CHECK(contains(error_of(flash, "expert_swiglu_limit_list", "[1,2,3]"),
                   "expert_swiglu_limit_list: has 3 entries, num_hidden_layers is 42"));
    CHECK(contains(error_of(flash, "share_expert_swiglu_limit_list", "[0,0,-1]"),
                   "share_expert_swiglu_limit_list: entry 2: must not be below 0"));
    CHECK(contains(error_of(older, "linear_silu", "true"), "linear_silu"));
    CHECK(contains(error_of(older, "use_qk_norm", "false"), "use_qk_norm"));
    CHECK(contains(error_of(older, "num_attention_heads", "24"), "only powers of two"));
    CHECK(contains(error_of(older, "group_norm_size", "3"), "group_norm_size"));
    CHECK(contains(model_error([] {
                     plan_of(older, {{"num_hidden_layers", "1"},
                                     {"layer_types", "[\"linear_attention\"]"},
                                     {"first_k_dense_replace", "0"}});
                   }),
                   "num_hidden_layers: is 1, at least 2"));
  }
}

}  // namespace bailing_hybrid_test
