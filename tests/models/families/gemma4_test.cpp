#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace gemma4_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* own = "gemma4";            // K = V in full layers
constexpr const char* shared = "gemma4-shared";  // keys of others, embeddings per layer

std::string error_of(const std::string& name, const std::string& key, const std::string& value) {
  return model_error([&] { fixture_plan(name, {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

const Mlp& mlp(const Plan& plan, std::size_t layer) {
  return std::get<Mlp>(plan.layers.at(layer).blocks.at(1).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/gemma4") {
  TEST_CASE("full layers have wider heads, fewer of keys, and values made of the keys") {
    const Plan plan = fixture_plan(own);
    for (const std::size_t layer : {0, 1, 3}) {
      CHECK(attention(plan, layer).window == 8);
      CHECK(attention(plan, layer).head_dim == 16);
      CHECK(attention(plan, layer).kv_heads == 2);
      CHECK(!attention(plan, layer).keys_are_values);
      CHECK(attention(plan, layer).rope->theta == 500.0);
    }
    for (const std::size_t layer : {2, 4}) {
      CHECK(attention(plan, layer).window == 0);
      CHECK(attention(plan, layer).head_dim == 32);
      CHECK(attention(plan, layer).kv_heads == 1);
      CHECK(attention(plan, layer).keys_are_values);
      const std::vector<double>& speeds = attention(plan, layer).rope->frequencies;
      REQUIRE(speeds.size() == 16);
      CHECK(speeds[3] > 0.0);
      CHECK(speeds[4] == 0.0);
    }
    CHECK(attention(plan, 0).scale == 1.0F);
    CHECK(attention(plan, 0).qk_norm == Norm::rms);
    CHECK(attention(plan, 0).value_norm);
    CHECK(plan.logits_cap == 5.0F);
    CHECK(plan.embedding_times_root);
    CHECK(!plan.layer_inputs);
    CHECK(contains(attention(plan, 2).text().text, "v norm, v is k"));
  }

  TEST_CASE("experts beside a feed-forward, each between two norms of its own") {
    const Plan plan = fixture_plan("gemma4-moe");
    CHECK(plan.norms_parts());
    for (const Layer& layer : plan.layers) {
      const Block& block = layer.blocks.at(1);
      CHECK(block.norms_parts);
      CHECK(block.has_factor);
      CHECK(block.post_norm == Norm::rms);
      CHECK(std::get<Mlp>(block.parts.at(0)).hidden > 0);
      const auto& experts = std::get<Moe>(block.parts.at(1));
      CHECK(experts.experts == 6);
      CHECK(experts.active == 2);
      CHECK(experts.hidden == 20);
      CHECK(experts.renormalize);
      CHECK(experts.router_norm);
      CHECK(experts.expert_scale);
      CHECK(
          experts.text().text ==
          "6 experts, 2 active, 20 wide, gated gelu_tanh, router with a norm, a factor per expert");
    }
    CHECK(!fixture_plan(own).norms_parts());
  }

  TEST_CASE("norms before and after every block, then a factor per layer") {
    const Plan plan = fixture_plan(own);
    for (const Layer& layer : plan.layers) {
      REQUIRE(layer.blocks.size() == 2);
      CHECK(layer.blocks[0].norm == Norm::rms);
      CHECK(layer.blocks[0].post_norm == Norm::rms);
      CHECK(!layer.blocks[0].has_factor);
      CHECK(layer.blocks[1].has_factor);
    }
  }

  TEST_CASE("the last layers read the keys of the last one before them of their kind") {
    const Plan plan = fixture_plan(shared);
    for (const std::size_t layer : {0, 1, 2}) CHECK(attention(plan, layer).kv_of == -1);
    CHECK(attention(plan, 3).kv_of == 2);
    CHECK(attention(plan, 4).kv_of == 2);
    CHECK(attention(plan, 5).kv_of == 1);
    CHECK(!attention(plan, 5).memory().kv);
    CHECK(contains(attention(plan, 5).text().text, "keys and values of layer 1"));
    CHECK(mlp(plan, 2).hidden == 43);
    CHECK(mlp(plan, 3).hidden == 86);
    CHECK(contains(error_of(shared, "num_kv_shared_layers", "5"), "leaves layer 1 no layer"));
    CHECK(contains(error_of(shared, "num_kv_shared_layers", "6"), "num_kv_shared_layers"));
  }

  TEST_CASE("every layer has an embedding of its own, added after the feed-forward") {
    const Plan plan = fixture_plan(shared);
    REQUIRE(plan.layer_inputs);
    CHECK(plan.layer_inputs->width == 12);
    CHECK(plan.layer_inputs->vocab == 151);
    CHECK(plan.layer_inputs_width() == 6 * 12);
    for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
      REQUIRE(plan.layers[layer].blocks.size() == 3);
      const Block& block = plan.layers[layer].blocks[2];
      CHECK(block.norm == Norm::none);
      CHECK(block.has_factor);
      CHECK(std::get<LayerInput>(block.parts.at(0)).layer == static_cast<std::int32_t>(layer));
    }
  }

  TEST_CASE("the last layer sees everything whatever layer_types says") {
    const std::string sliding = R"(["sliding_attention","full_attention","sliding_attention",)"
                                R"("sliding_attention","sliding_attention"])";
    const Plan plan = fixture_plan(own, {{"layer_types", sliding}});
    CHECK(attention(plan, 4).window == 0);
    CHECK(attention(plan, 3).window == 8);
  }

  TEST_CASE("what published files leave out is what transformers takes") {
    const Plan plan = fixture_plan(own, {{"rope_parameters", ""},
                                         {"global_head_dim", ""},
                                         {"sliding_window", ""},
                                         {"hidden_size_per_layer_input", ""},
                                         {"vocab_size_per_layer_input", ""}});
    CHECK(attention(plan, 0).window == 512);
    CHECK(attention(plan, 0).rope->theta == 1e4);
    CHECK(attention(plan, 2).head_dim == 512);
    CHECK(attention(plan, 2).rope->frequencies.at(63) > 0.0);
    CHECK(attention(plan, 2).rope->frequencies.at(64) == 0.0);
    CHECK(plan.layer_inputs->width == 256);
    CHECK(plan.layer_inputs->vocab == 262144);
  }

  TEST_CASE("heads of full layers as transformers 5.15 and later write them") {
    const auto error = [](const char* layers) { return error_of(own, "per_layer_config", layers); };
    CHECK(contains(error(R"({"2":{"head_dim":32},"4":{"head_dim":24}})"),
                   "per_layer_config: layer 2 has other heads than those of its kind"));
    CHECK(contains(error(R"({"2":{"head_dim":32}})"), "layer 2 has other heads"));
    CHECK(contains(error(R"({"1":{"num_key_value_heads":1}})"), "layer 1 has other heads"));
    CHECK(contains(error(R"({"5":{"head_dim":32}})"), "\"5\" is no layer"));
    CHECK(contains(error(R"({"2x":{"head_dim":32}})"), "\"2x\" is no layer"));
    CHECK(contains(error(R"({"2":{"intermediate_size":8}})"),
                   "per_layer_config.\"2\".\"intermediate_size\": of a single layer"));
    CHECK(contains(error(R"({"2":{"num_key_value_heads":3},"4":{"num_key_value_heads":3}})"),
                   "num_attention_heads"));
    CHECK(contains(error("[]"), "must be an object"));
    // All layers alike: transformers writes an empty object.
    const Plan plan = fixture_plan(own, {{"per_layer_config", "{}"}});
    CHECK(attention(plan, 2).head_dim == 16);
    CHECK(attention(plan, 2).kv_heads == 2);
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of(own, "enable_moe_block", "true"), "num_experts: is missing"));
    CHECK(contains(error_of(own, "attention_bias", "true"), "attention_bias"));
    CHECK(contains(error_of(own, "use_bidirectional_attention", "\"all\""),
                   "use_bidirectional_attention"));
    CHECK(contains(error_of(own, "hidden_activation", "\"silu\""), "hidden_activation"));
    CHECK(contains(error_of(own, "num_global_key_value_heads", "3"), "num_"));
    CHECK(contains(error_of(own, "rope_parameters", R"({"rope_type":"default"})"),
                   "needs a rope for every kind of layer"));
  }
}

}  // namespace gemma4_test
