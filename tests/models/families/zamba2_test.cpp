#include <doctest/doctest.h>

#include <algorithm>

#include "models/roofline.h"
#include "models/weight_index.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace zamba2_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* published = "zamba2-7b";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(published, {{key, value}}); });
}

const SharedTransformer& block(const Plan& plan, std::size_t layer) {
  return std::get<SharedTransformer>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}
const Ssd& ssd(const Plan& plan, std::size_t layer) {
  return std::get<Ssd>(plan.layers.at(layer).blocks.at(0).parts.back());
}

}  // namespace

TEST_SUITE("models/families/zamba2") {
  TEST_CASE("Mamba-2 everywhere, and two blocks in turn, which their layers share") {
    const Plan plan = plan_of(published);
    REQUIRE(plan.layers.size() == 81);
    CHECK(plan.tied_head);
    std::int32_t uses = 0;
    for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
      const Block& own = plan.layers[layer].blocks.front();
      CHECK(ssd(plan, layer) == ssd(plan, 0));
      CHECK(own.feeds_norm == (own.parts.size() == 2));
      if (!own.feeds_norm) continue;
      CHECK(block(plan, layer).layer == static_cast<std::int32_t>(layer));
      CHECK(block(plan, layer).use == uses);
      CHECK(block(plan, layer).first_layer == (uses % 2 == 0 ? 6 : 11));
      ++uses;
    }
    CHECK(uses == 13);
    CHECK(ssd(plan, 0).norm_groups == 2);
    CHECK(block(plan, 77).text().text ==
          "32 heads x 224, 32 kv heads, rope over 224 dims, theta 10000; 14336 wide, gated gelu; "
          "block of layer 6, adapters of gate and up of rank 128");
    CHECK(block(plan, 6).attention.scale == 1.0F / std::sqrt(112.0F));
  }

  TEST_CASE("a shared matrix is needed once, and read by every layer that shares it") {
    const Plan plan = plan_of(published);
    std::int64_t queries = 0, adapters = 0;
    for (const RequiredWeight& weight : required_weights(plan, zamba2::family)) {
      queries += weight.key.role == "attention.q" ? 1 : 0;
      if (weight.key.role != "shared.mlp_right") continue;
      const std::string at = adapters % 2 == 0 ? "6" : "11", use = std::to_string(adapters++);
      CHECK(weight.names.front() == "model.layers." + at +
                                        ".shared_transformer.feed_forward.gate_up_proj_adapter_"
                                        "list." +
                                        use + ".1.weight");
    }
    CHECK(queries == 2);
    CHECK(adapters == 13);
    const std::int64_t all = parameters(required_weights(plan, zamba2::family));
    const Roofline roofline(plan, geometry_of(plan));
    const auto& shared = block(plan, 6);
    const std::int64_t of_block = 4 * 2 * std::int64_t{plan.width} * shared.attention.inner() -
                                  std::int64_t{plan.width} * shared.attention.inner() +
                                  3 * std::int64_t{plan.width} * shared.mlp.hidden +
                                  3 * std::int64_t{plan.width};
    CHECK(roofline.active_parameters() + roofline.head_parameters() == all + 11 * of_block);
  }

  TEST_CASE("what is not said is what transformers takes") {
    const Plan unsaid = plan_of("zamba2-2.7b", {{"use_mem_rope", ""},
                                                {"use_long_context", ""},
                                                {"rope_theta", ""},
                                                {"num_key_value_heads", ""},
                                                {"intermediate_size", ""},
                                                {"adapter_rank", ""},
                                                {"use_shared_attention_adapter", ""},
                                                {"use_shared_mlp_adapter", ""},
                                                {"mamba_ngroups", ""},
                                                {"mamba_d_state", ""},
                                                {"mamba_d_conv", ""},
                                                {"mamba_expand", ""},
                                                {"use_conv_bias", ""},
                                                {"add_bias_linear", ""}});
    CHECK(unsaid == plan_of("zamba2-2.7b"));
    CHECK(block(plan_of(published, {{"num_mem_blocks", ""}}), 77).first_layer == 6);
    CHECK(plan_of(published, {{"use_long_context", "true"}}).positions_max == 16384);
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of("hidden_act", "\"gelu_new\""), "hidden_act: \"gelu_new\" is not"));
    CHECK(contains(error_of("add_bias_linear", "true"), "add_bias_linear: true is not supported"));
    CHECK(contains(error_of("use_conv_bias", "false"), "use_conv_bias: false is not supported"));
    CHECK(contains(error_of("use_shared_mlp_adapter", "false"), "use_shared_mlp_adapter: false"));
    CHECK(contains(error_of("tie_word_embeddings", "false"), "tie_word_embeddings: false is not"));
    CHECK(contains(error_of("time_step_limit", "[0.1,1.0]"), "time_step_limit"));
    CHECK(contains(error_of("layers_block_type", R"(["mamba"])"), "has 1 entries"));
    CHECK(contains(error_of("hybrid_layer_ids", "[6]"), "hybrid_layer_ids: are not"));
    CHECK(contains(error_of("attention_head_dim", "112"), "attention_head_dim: is not 224"));
    CHECK(contains(error_of("attention_hidden_size", "3584"), "is not 7168"));
    CHECK(contains(error_of("mamba_headdim", "32"), "mamba_headdim: is not 64"));
    CHECK(contains(error_of("num_mem_blocks", "0"), "num_mem_blocks"));
    CHECK(contains(model_error([] {
                     plan_of(published, {{"use_shared_attention_adapter", "true"},
                                         {"num_key_value_heads", "8"}});
                   }),
                   "num_key_value_heads: must be num_attention_heads"));
  }
}

}  // namespace zamba2_test
