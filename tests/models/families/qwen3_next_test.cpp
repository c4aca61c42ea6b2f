#include <doctest/doctest.h>

#include <type_traits>
#include <utility>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace qwen3_next_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* name = "qwen3-next-80b-a3b";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(name, {{key, value}}); });
}

bool is_full(const Plan& plan, std::size_t layer) {
  return std::holds_alternative<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/qwen3_next") {
  TEST_CASE("yarn on the part of a head that rotates, as Qwen's recipe for long texts has it") {
    const auto plan = [](const char* scaling) {
      return plan_of("qwen3-next-80b-a3b", {{"rope_scaling", scaling}});
    };
    const Plan own = plan(R"({"rope_type":"yarn","factor":4.0,)"
                          R"("original_max_position_embeddings":262144})");
    const Attention* attention = nullptr;
    own.visit_parts([&]<typename P>(const P& part) {
      if constexpr (std::is_same_v<P, Attention>) attention = &part;
    });
    REQUIRE(attention != nullptr);
    const RopeParameters& rope = *attention->rope;
    CHECK(rope.rotary_dim() == 64);
    CHECK(rope.magnitude == doctest::Approx(1.1386294361119891));
    CHECK(rope.scaling == "yarn x 4");
    CHECK(own.positions_max == 4 * 262144);
    // By the formula of _compute_yarn_parameters of transformers 5.24, whose dim is 64.
    const std::pair<std::size_t, double> known[] = {{0, 1.0},
                                                    {10, 0.006493816315762114},
                                                    {15, 0.0004742398226801046},
                                                    {18, 7.217387404309113e-05},
                                                    {22, 3.8498163151487305e-06},
                                                    {31, 4.137042749857954e-08}};
    REQUIRE(rope.frequencies.size() == 32);
    for (const auto& [pair, frequency] : known) {
      CHECK(rope.frequencies[pair] == doctest::Approx(frequency).epsilon(1e-6));
    }
  }

  TEST_CASE("three delta layers to one attention layer") {
    const Plan plan = plan_of(name);
    REQUIRE(plan.layers.size() == 48);
    for (std::size_t layer = 0; layer < 48; ++layer)
      CHECK(is_full(plan, layer) == (layer % 4 == 3));
    CHECK(plan.final_norm == Norm::rms_1p);
    CHECK(plan.has_rope());
    const auto& attention = std::get<Attention>(plan.layers[3].blocks[0].parts[0]);
    CHECK(attention.output_gate);
    CHECK(attention.qk_norm == Norm::rms_1p);
    CHECK(attention.scale == 0.0625F);
    REQUIRE(attention.rope);
    CHECK(attention.rope->rotary_dim() == 64);
    CHECK(attention.rope->theta == 1e7);
    const auto& delta = std::get<DeltaNet>(plan.layers[0].blocks[0].parts[0]);
    CHECK(delta.conv_dim() == 8192);
    const auto& moe = std::get<Moe>(plan.layers[0].blocks[1].parts[0]);
    CHECK(moe.score == RouterScore::softmax);
    CHECK(moe.renormalize);
    CHECK(moe.shared_gate);
  }

  TEST_CASE("Qwen3.5: dense or sparse in every layer, always renormalised") {
    const Plan small = plan_of("qwen3.5-0.8b");
    REQUIRE(small.layers.size() == 24);
    CHECK(std::get<Mlp>(small.layers[0].blocks[1].parts[0]).hidden == 3584);
    CHECK(std::get<Attention>(small.layers[3].blocks[0].parts[0]).rope->rotary_dim() == 64);
    CHECK(small.tied_head);
    const Plan sparse = plan_of("qwen3.5-35b-a3b", {{"norm_topk_prob", "false"}});
    for (const Layer& layer : sparse.layers) {
      CHECK(std::get<Moe>(layer.blocks[1].parts[0]).renormalize);
    }
    CHECK(contains(model_error([] {
                     plan_of("qwen3.5-0.8b", {{"output_gate_type", "\"sigmoid\""}});
                   }),
                   "output_gate_type: \"sigmoid\" is not supported"));
  }

  TEST_CASE("layer_types, sparse steps and lists of plain layers") {
    const std::string types = layer_types(48, {0}, "full_attention", "linear_attention");
    const Plan plan = plan_of(
        name, {{"layer_types", types}, {"decoder_sparse_step", "2"}, {"mlp_only_layers", "[5]"}});
    CHECK(is_full(plan, 0));
    CHECK(!is_full(plan, 3));
    const auto is_moe = [&](std::size_t layer) {
      return std::holds_alternative<Moe>(plan.layers[layer].blocks[1].parts[0]);
    };
    CHECK(!is_moe(0));
    CHECK(is_moe(1));
    CHECK(!is_moe(5));
    CHECK(std::get<Mlp>(plan.layers[5].blocks[1].parts[0]).hidden == 5120);
  }

  TEST_CASE("a draft layer of gated attention, with experts where the model has some") {
    const auto draft = [](const std::string& model, const std::vector<Edit>& edits = {}) {
      return plan_of(preset(model, edits), true).draft;
    };
    CHECK_FALSE(plan_of(preset(name), false).draft);
    for (const std::string model : {name, "qwen3.5-35b-a3b", "qwen3.5-4b"}) {
      CAPTURE(model);
      const std::optional<DraftLayer> found = draft(model);
      REQUIRE(found);
      CHECK(found->norm == Norm::rms_1p);
      REQUIRE(found->layers.size() == 1);
      const std::vector<Block>& blocks = found->layers[0].blocks;
      REQUIRE(blocks.size() == 2);
      CHECK(std::get<Attention>(blocks[0].parts.at(0)).output_gate);
      CHECK(std::holds_alternative<Moe>(blocks[1].parts.at(0)) == (model != "qwen3.5-4b"));
    }
    CHECK_FALSE(draft("qwen3.5-4b", {{"mtp_num_hidden_layers", "0"}}));
    CHECK_FALSE(draft("qwen3.5-4b", {{"mtp_num_hidden_layers", "2"}}));
    CHECK_FALSE(draft("qwen3.5-4b", {{"mtp_use_dedicated_embeddings", "true"}}));
  }

  TEST_CASE("a key that is lost does not turn a part off") {
    CHECK(contains(error_of("num_experts", ""), "num_experts: is missing"));
    CHECK(contains(error_of("shared_expert_intermediate_size", ""),
                   "shared_expert_intermediate_size: is missing"));
  }

  TEST_CASE("what contradicts itself is an error by name") {
    CHECK(contains(error_of("linear_key_head_dim", "512"), "at most 256"));
    CHECK(contains(error_of("mamba_ssm_dtype", "\"float16\""), "mamba_ssm_dtype: F16"));
    CHECK(contains(error_of("rope_parameters", R"({"full_attention":{"rope_theta":1}})"),
                   "every kind of layer"));
    CHECK(contains(error_of("linear_num_value_heads", "33"), "linear_num_key_heads, which is 16"));
    CHECK(contains(error_of("mlp_only_layers", "[48]"), "mlp_only_layers"));
    CHECK(contains(error_of("partial_rotary_factor", "1.5"), "partial_rotary_factor"));
    CHECK(contains(error_of("partial_rotary_factor", "0.02"), "even number"));
    CHECK(contains(error_of("layer_types", "[\"full_attention\"]"), "num_hidden_layers is 48"));
    CHECK(contains(error_of("rope_parameters", R"({"rope_type":"longrope"})"), "\"longrope\""));
    CHECK(contains(error_of("num_experts_per_tok", "513"), "only 512"));
  }
}

}  // namespace qwen3_next_test
