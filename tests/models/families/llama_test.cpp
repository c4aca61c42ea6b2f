#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace llama_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* small = "llama-3.2-1b";

std::string error_of(const std::string& key, const std::string& value, const char* name = small) {
  return model_error([&] { plan_of(name, {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer = 0) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/llama") {
  TEST_CASE("the plan of Llama-3.2-1B") {
    const Plan plan = plan_of(small);
    REQUIRE(plan.layers.size() == 16);
    CHECK(plan.tied_head);
    CHECK(plan.norm_eps == 1e-5F);
    const Attention& found = attention(plan);
    CHECK(found.heads == 32);
    CHECK(found.kv_heads == 8);
    CHECK(found.head_dim == 64);
    CHECK(found.scale == 0.125F);
    CHECK(!found.qk_norm);
    REQUIRE(found.rope);
    CHECK(found.rope->rotary_dim() == 64);
    CHECK(found.rope->theta == 500000.0);
    CHECK(found.text().text.ends_with("theta 500000, llama3 x 32"));
    CHECK(std::get<Mlp>(plan.layers[15].blocks.at(1).parts.at(0)).hidden == 8192);
  }

  TEST_CASE("llama3 slows what turns less than once in the first context, and keeps four turns") {
    const Plan plan = plan_of(small);
    const std::vector<double>& found = attention(plan).rope->frequencies;
    REQUIRE(found.size() == 32);
    for (std::size_t i = 0; i < 32; ++i) {
      const double plain = std::pow(500000.0, -static_cast<double>(i) / 32);
      const double turns = 8192 * plain / (2 * 3.14159265358979);
      CAPTURE(turns);
      if (turns > 4) CHECK(found[i] == doctest::Approx(plain));
      if (turns < 1) CHECK(found[i] == doctest::Approx(plain / 32));
      if (turns < 4) CHECK(found[i] < plain);
      if (turns > 1) CHECK(found[i] > plain / 32);
    }
  }

  TEST_CASE("linear scaling divides every frequency; default has none of its own") {
    const Plan plan = plan_of(small, {{"rope_scaling", R"({"type":"linear","factor":4})"}});
    CHECK(attention(plan).rope->frequencies.at(0) == 0.25);
    CHECK(attention(plan).rope->scaling == "linear x 4");
    const RopeParameters usual = *attention(plan_of(small, {{"rope_scaling", "null"}})).rope;
    CHECK(usual == RopeParameters::plain(usual.rotary_dim(), usual.theta));
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act: \"gelu\""));
    CHECK(contains(error_of("attention_bias", "true"), "attention_bias: true is not supported"));
    CHECK(contains(error_of("mlp_bias", "true"), "mlp_bias: true is not supported"));
    CHECK(contains(error_of("intermediate_size", ""), "intermediate_size: is missing"));
    CHECK(contains(error_of("rope_scaling", R"({"rope_type":"longrope","factor":4})"),
                   "rope_scaling.rope_type: \"longrope\" is not supported"));
    CHECK(contains(error_of("rope_scaling", R"({"rope_type":"linear"})"), "factor: is missing"));
    CHECK(contains(error_of("rope_scaling", R"({"rope_type":"linear","factor":0})"),
                   "rope_scaling.factor: must be above 0, is 0"));
    CHECK(contains(error_of("rope_scaling",
                            R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,
                                "high_freq_factor":3,"original_max_position_embeddings":8192})"),
                   "high_freq_factor: must be at least low_freq_factor, is 3"));
  }
}

TEST_SUITE("models/families/granite") {
  TEST_CASE("the plan of Granite 3.1 2B has every factor") {
    const Plan plan = plan_of("granite-3.1-2b");
    REQUIRE(plan.layers.size() == 40);
    CHECK(plan.embedding_scale == 12.0F);
    CHECK(plan.logits_scale == 0.125F);
    CHECK(attention(plan).scale == 0.015625F);
    CHECK(attention(plan).output_scale == 0.22F);
    CHECK(*attention(plan).rope == RopeParameters::plain(64, 5e6));
    CHECK(std::get<Mlp>(plan.layers[39].blocks.at(1).parts.at(0)).output_scale == 0.22F);
  }

  TEST_CASE("what is not supported is an error by name") {
    for (const char* key : {"attention_bias", "mlp_bias"}) {
      CHECK(contains(error_of(key, "true", "granite-3.1-2b"), "true is not supported"));
    }
    for (const char* key : {"logits_scaling", "embedding_multiplier", "attention_multiplier",
                            "residual_multiplier"}) {
      CHECK(contains(error_of(key, "0", "granite-3.1-2b"), "must be above 0, is 0"));
    }
  }
}

TEST_SUITE("models/families/qwen3") {
  TEST_CASE("the plan of Qwen3-0.6B norms q and k") {
    const Plan plan = plan_of("qwen3-0.6b");
    REQUIRE(plan.layers.size() == 28);
    CHECK(attention(plan).qk_norm == Norm::rms);
    CHECK(attention(plan).head_dim == 128);
    CHECK(!attention(plan).output_gate);
    CHECK(attention(plan_of("qwen3-0.6b", {{"head_dim", ""}})).head_dim == 128);
  }

  TEST_CASE("the experts of Qwen3-30B-A3B") {
    const Plan plan = plan_of("qwen3-30b-a3b");
    REQUIRE(plan.layers.size() == 48);
    const Moe& moe = std::get<Moe>(plan.layers[0].blocks.at(1).parts.at(0));
    CHECK(moe.experts == 128);
    CHECK(moe.active == 8);
    CHECK(moe.hidden == 768);
    CHECK(moe.score == RouterScore::softmax);
    CHECK(moe.renormalize);
    CHECK(moe.shared_hidden == 0);
    const Plan mixed =
        plan_of("qwen3-30b-a3b", {{"decoder_sparse_step", "2"}, {"mlp_only_layers", "[3]"}});
    for (const auto& [layer, sparse] : {std::pair{0, false}, {1, true}, {3, false}, {5, true}}) {
      const Part& part = mixed.layers[static_cast<std::size_t>(layer)].blocks.at(1).parts.at(0);
      CHECK(std::holds_alternative<Moe>(part) == sparse);
    }
    CHECK(
        !std::get<Moe>(
             plan_of("qwen3-30b-a3b", {{"norm_topk_prob", ""}}).layers[0].blocks.at(1).parts.at(0))
             .renormalize);
    CHECK(attention(plan_of("qwen3-30b-a3b", {{"head_dim", ""}})).head_dim == 64);
  }

  TEST_CASE("windows from a layer on, or where layer_types says") {
    const std::vector<Edit> from_20 = {
        {"use_sliding_window", "true"}, {"sliding_window", "512"}, {"max_window_layers", "20"}};
    const std::vector<Edit> listed = {
        {"use_sliding_window", "true"},
        {"sliding_window", "512"},
        {"layer_types", layer_types(28, {5, 27}, "sliding_attention", "full_attention")}};
    for (std::size_t layer = 0; layer < 28; ++layer) {
      CAPTURE(layer);
      CHECK(attention(plan_of("qwen3-0.6b", from_20), layer).window == (layer < 20 ? 0 : 512));
      const bool is_listed = layer == 5 || layer == 27;
      CHECK(attention(plan_of("qwen3-0.6b", listed), layer).window == (is_listed ? 512 : 0));
    }
    CHECK(contains(attention(plan_of("qwen3-0.6b", listed), 5).text().text, ", window of 512,"));
  }

  TEST_CASE("windows that nothing asks for, or beside experts, are refused") {
    CHECK(
        contains(error_of("use_sliding_window", "true", "qwen3-30b-a3b"), "true is not supported"));
    const std::string types = layer_types(28, {}, "", "full_attention");
    CHECK(error_of("layer_types", types, "qwen3-0.6b").empty());
    CHECK(contains(error_of("layer_types", layer_types(28, {5}, "sliding_attention", "attention"),
                            "qwen3-0.6b"),
                   "entry 5: \"sliding_attention\""));
  }
}

}  // namespace llama_test
