#include <doctest/doctest.h>

#include "models/weight_index.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace olmo_hybrid_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* published = "olmo-hybrid-7b";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(published, {{key, value}}); });
}

const Attention& attention(const Plan& plan) {
  return std::get<Attention>(plan.layers.at(3).blocks.at(0).parts.at(0));
}
const DeltaNet& delta(const Plan& plan) {
  return std::get<DeltaNet>(plan.layers.at(0).blocks.at(0).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/olmo_hybrid") {
  TEST_CASE("delta nets whose beta reaches 2, and attention with its norms after its parts") {
    const Plan plan = plan_of(published);
    REQUIRE(plan.layers.size() == 32);
    CHECK(delta(plan).text().text ==
          "gated delta net, 30 value heads, 30 key heads, 96 x 192, convolution of 4, beta x 2");
    CHECK(delta(plan).norm_eps == 1e-5F);
    CHECK(attention(plan).text().text ==
          "30 heads x 128, 30 kv heads, no positions, q/k norm over all heads");
    for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
      for (const Block& block : plan.layers[layer].blocks) {
        CHECK(block.norm == (layer % 4 == 3 ? Norm::none : Norm::rms));
        CHECK(block.post_norm.has_value() == (layer % 4 == 3));
      }
    }
  }

  TEST_CASE("heads without a width are refused") {
    CHECK(contains(model_error([] {
                     plan_of(published, {{"linear_key_head_dim", ""},
                                         {"linear_num_key_heads", "3840"},
                                         {"linear_num_value_heads", "3840"}});
                   }),
                   "linear_num_key_heads: leaves heads of no width"));
  }

  TEST_CASE("what is not said is what transformers takes") {
    const Plan unsaid = plan_of(published, {{"layer_types", ""},
                                            {"num_key_value_heads", ""},
                                            {"linear_num_key_heads", ""},
                                            {"linear_num_value_heads", ""},
                                            {"linear_key_head_dim", ""},
                                            {"linear_value_head_dim", ""},
                                            {"linear_conv_kernel_dim", ""},
                                            {"linear_allow_neg_eigval", ""},
                                            {"tie_word_embeddings", ""}});
    CHECK(unsaid == plan_of(published));
    CHECK(delta(plan_of(published, {{"linear_allow_neg_eigval", "false"}})).shape.beta_scale ==
          1.0F);
  }

  TEST_CASE("positions are there unless a null says that they are not") {
    const auto theta = [](const std::vector<Edit>& edits) {
      const Plan plan = plan_of(published, edits);
      return attention(plan).rope ? attention(plan).rope->theta : 0.0;
    };
    CHECK(theta({}) == 0.0);
    CHECK(theta({{"rope_theta", ""}}) == 10000.0);
    CHECK(theta({{"rope_theta", "500000.0"}}) == 500000.0);
    CHECK(theta({{"rope_theta", ""}, {"rope_parameters", "null"}}) == 10000.0);
    CHECK(theta({{"rope_parameters", R"({"rope_type":"default"})"}}) == 0.0);
    const char* const with_theta = R"({"rope_type":"default","rope_theta":3000})";
    CHECK(theta({{"rope_parameters", with_theta}}) == 3000.0);
    const char* const with_null = R"({"rope_type":"default","rope_theta":null})";
    CHECK(theta({{"rope_theta", "500000.0"}, {"rope_parameters", with_null}}) == 0.0);
  }

  TEST_CASE("norms and convolutions are found as they are published and as transformers has them") {
    int seen = 0;
    for (const RequiredWeight& weight : required_weights(plan_of(published), olmo_hybrid::family)) {
      const auto named = [&](std::string_view first, std::string_view last) {
        if (weight.names.front() != first) return;
        ++seen;
        CHECK(weight.names.back() == last);
      };
      named("model.layers.0.attention_layer_norm.weight", "model.layers.0.input_layernorm.weight");
      named("model.layers.0.feedforward_layer_norm.weight",
            "model.layers.0.post_attention_layernorm.weight");
      named("model.layers.3.post_attention_layernorm.weight",
            "model.layers.3.feedforward_layer_norm.weight");
      named("model.layers.0.linear_attn.v_conv1d.weight",
            "model.layers.0.linear_attn.v_conv1d.weight");
    }
    CHECK(seen == 4);
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of("attention_bias", "true"), "attention_bias: true is not supported"));
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act: \"gelu\" is not supported"));
    CHECK(contains(error_of("linear_conv_kernel_dim", "5"), "linear_conv_kernel_dim"));
    CHECK(contains(error_of("layer_types", R"(["mamba"])"), "has 1 entries"));
    CHECK(contains(error_of("linear_value_head_dim", "512"), "at most 256 is supported"));
    CHECK(contains(model_error([] {
                     plan_of(published, {{"rope_theta", "1e4"}, {"partial_rotary_factor", "0.5"}});
                   }),
                   "partial_rotary_factor: is not supported, only 1"));
  }
}

}  // namespace olmo_hybrid_test
