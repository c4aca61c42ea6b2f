#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace lfm2_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* dense = "lfm2-350m";
constexpr const char* sparse = "lfm2-8b-a1b";

std::string error_of(const char* name, const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(name, {{key, value}}); });
}

bool has_attention(const Plan& plan, std::size_t layer) {
  return std::holds_alternative<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

std::int32_t mlp_width(const std::vector<Edit>& edits) {
  return std::get<Mlp>(plan_of(dense, edits).layers[0].blocks[1].parts[0]).hidden;
}

}  // namespace

TEST_SUITE("models/families/lfm2") {
  TEST_CASE("short convolutions, attention with q/k norms and full rope, a tied head") {
    const Plan plan = plan_of(dense);
    REQUIRE(plan.layers.size() == 16);
    for (const std::size_t layer : {2, 5, 8, 10, 12, 14}) CHECK(has_attention(plan, layer));
    CHECK(!has_attention(plan, 0));
    const auto& conv = std::get<ShortConv>(plan.layers[0].blocks[0].parts[0]);
    CHECK(conv.channels == 1024);
    CHECK(conv.conv_width == 3);
    const auto& attention = std::get<Attention>(plan.layers[2].blocks[0].parts[0]);
    CHECK(attention.qk_norm == Norm::rms);
    CHECK(attention.rope->rotary_dim() == 64);
    CHECK(attention.rope->theta == 1e6);
    CHECK(plan.tied_head);
  }

  TEST_CASE("both spellings of which layers have attention") {
    const Plan plan = plan_of(dense, {{"layer_types", ""}, {"full_attn_idxs", "[1, 15]"}});
    CHECK(has_attention(plan, 1));
    CHECK(has_attention(plan, 15));
    CHECK(!has_attention(plan, 2));
    CHECK(has_attention(plan_of(dense, {{"layer_types", ""}, {"full_attn_idxs", ""}}), 0));
  }

  TEST_CASE("the width of a feed-forward is adjusted as published") {
    CHECK(mlp_width({}) == 4608);
    const std::vector<Edit> by_hand = {{"block_auto_adjust_ff_dim", "true"},
                                       {"block_ff_dim", "1000"},
                                       {"block_ffn_dim_multiplier", "1.5"},
                                       {"block_multiple_of", "64"}};
    CHECK(mlp_width(by_hand) == 1024);  // int(2/3 * 1000) = 666, * 1.5 = 999, up to 64s
    CHECK(mlp_width({{"block_auto_adjust_ff_dim", "false"}, {"block_ff_dim", "777"}}) == 777);
    // Null is no factor and no rounding; an absent one is 1.
    CHECK(mlp_width({{"block_ff_dim", "1000"}, {"block_ffn_dim_multiplier", "null"}}) == 666);
    CHECK(mlp_width({{"block_ff_dim", "1000"}, {"block_ffn_dim_multiplier", ""}}) == 768);
  }

  TEST_CASE(
      "the first layers of the sparse kind are dense; its router chooses by biased sigmoids") {
    const Plan plan = plan_of(sparse);
    CHECK(std::get<Mlp>(plan.layers[1].blocks[1].parts[0]).hidden == 7168);
    const Plan other =
        plan_of(sparse, {{"block_ff_dim", "9000"}});  // of the dense kind's keys none
    CHECK(std::get<Mlp>(other.layers[1].blocks[1].parts[0]).hidden == 7168);
    const auto& moe = std::get<Moe>(plan.layers[2].blocks[1].parts[0]);
    CHECK(moe.score == RouterScore::sigmoid);
    CHECK(moe.correction_bias);
    CHECK(moe.renormalize);
    CHECK(moe.renormalize_epsilon == 1e-6F);
    CHECK(!moe.router_f32);
    CHECK(moe.active == 4);
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of(dense, "conv_bias", "true"), "conv_bias: true is not supported"));
    CHECK(contains(error_of(dense, "partial_rotary_factor", "0.5"), "partial_rotary_factor"));
    CHECK(contains(error_of(dense, "theta", "5"), "theta: is not rope_theta"));
    CHECK(contains(error_of(dense, "conv_L_cache", "5"), "conv_L_cache"));
    CHECK(contains(error_of(dense, "block_ffn_dim_multiplier", "1e9"), "absurd"));
    CHECK(contains(error_of(dense, "rope_parameters", R"({"rope_type":"longrope"})"),
                   "\"longrope\""));
    CHECK(contains(error_of(sparse, "num_experts_per_tok", "33"), "only 32"));
  }
}

}  // namespace lfm2_test
