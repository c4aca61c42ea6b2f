#include <doctest/doctest.h>

#include "models/weight_index.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace lfm3_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* published = "lfm3-1.7b";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(published, {{key, value}}); });
}

/// Of ropes whose full attention is `full`.
std::vector<Edit> with_full_rope(const std::string& full) {
  return {{"rope_parameters", R"({"sliding_attention":{"rope_type":"default","rope_theta":10000},)"
                              R"("full_attention":)" +
                                  full + "}"}};
}

const Part& mixer(const Plan& plan, std::size_t layer) {
  return plan.layers.at(layer).blocks.at(0).parts.at(0);
}
const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(mixer(plan, layer));
}

}  // namespace

TEST_SUITE("models/families/lfm3") {
  TEST_CASE("seven taps, windows, a gate per head, norms before and after") {
    const Plan plan = plan_of(published);
    REQUIRE(plan.layers.size() == 24);
    const auto& conv = std::get<ShortConv>(mixer(plan, 0));
    CHECK(conv.channels == 2048);
    CHECK(conv.conv_width == 7);
    for (const std::size_t layer : {4, 8, 12, 16, 20}) CHECK(attention(plan, layer).window == 256);
    for (const std::size_t layer : {2, 6, 22}) CHECK(attention(plan, layer).window == 0);
    CHECK(attention(plan, 2).text().text ==
          "16 heads x 128, 4 kv heads, rope over 128 dims, theta 1000000, proportional 0.5, "
          "q/k norm, gate per head");
    CHECK(attention(plan, 4).text().text ==
          "16 heads x 128, 4 kv heads, rope over 128 dims, theta 10000, window of 256, q/k norm, "
          "gate per head");
    for (const Layer& layer : plan.layers) {
      for (const Block& block : layer.blocks) CHECK(block.post_norm == Norm::rms);
    }
    CHECK(plan.tied_head);
  }

  TEST_CASE("options off, and what is not said") {
    const Plan plain =
        plan_of(published, {{"use_attention_gate", "false"}, {"use_sandwich_norm", "false"}});
    CHECK(!attention(plain, 2).head_gate);
    CHECK(!plain.has_branches());
    const Plan unsaid = plan_of(published, {{"layer_types", ""},
                                            {"sliding_window", ""},
                                            {"head_dim", ""},
                                            {"conv_L_cache", ""},
                                            {"use_attention_gate", ""},
                                            {"use_sandwich_norm", ""},
                                            {"rope_parameters", ""},
                                            {"tie_word_embeddings", ""},
                                            {"num_key_value_heads", ""},
                                            {"intermediate_size", ""}});
    const Plan said = plan_of(published);
    REQUIRE(unsaid.layers.size() == said.layers.size());
    for (std::size_t layer = 0; layer < said.layers.size(); ++layer) {
      const auto text = [&](const Plan& plan) {
        return std::visit([](const auto& part) { return part.text().text; }, mixer(plan, layer));
      };
      CHECK(text(unsaid) == text(said));
    }
    CHECK(attention(unsaid, 2).rope->frequencies == attention(said, 2).rope->frequencies);
    CHECK(unsaid.has_branches());
    CHECK(unsaid.tied_head);
  }

  TEST_CASE("half of the pairs turn where rope_type is proportional") {
    const std::vector<double> speeds = attention(plan_of(published), 2).rope->frequencies;
    REQUIRE(speeds.size() == 64);
    CHECK(speeds[0] == 1.0);
    CHECK(speeds[31] > 0.0);
    CHECK(speeds[32] == 0.0);
  }

  TEST_CASE("a part of the dims beside another rope_type is refused: nothing says what it means") {
    const auto error = [](const std::string& full) {
      return model_error([&] { plan_of(published, with_full_rope(full)); });
    };
    const std::string refused =
        error(R"({"rope_type":"default","rope_theta":1e6,"partial_rotary_factor":0.5})");
    CHECK(contains(refused, "rope_parameters: full_attention: partial_rotary_factor is below 1"));
    CHECK(contains(refused, "set rope_type to \"proportional\""));
    CHECK(contains(error(R"({"rope_theta":1e6,"partial_rotary_factor":0.5})"), "is below 1"));
    CHECK(error(R"({"rope_type":"default","rope_theta":1e6,"partial_rotary_factor":1})") == "");
    CHECK(error(R"({"rope_type":"default","rope_theta":1e6})") == "");
  }

  TEST_CASE("a gate is found under both names") {
    const Plan plan = plan_of(published);
    int gates = 0;
    for (const RequiredWeight& weight : required_weights(plan, lfm3::family)) {
      if (weight.names.front() != "model.layers.4.self_attn.gate_proj.weight") continue;
      ++gates;
      CHECK(weight.shape == std::vector<std::int64_t>{16, 2048});
      CHECK(weight.names.back() == "model.layers.4.self_attn.g_proj.weight");
    }
    CHECK(gates == 1);
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of("conv_bias", "true"), "conv_bias: true is not supported"));
    CHECK(contains(error_of("attention_bias", "true"), "attention_bias: true is not supported"));
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act: \"gelu\" is not supported"));
    CHECK(contains(error_of("conv_L_cache", "5"), "conv_L_cache: is 5; 2, 3, 4 and 7"));
    CHECK(contains(error_of("conv_L_cache", "8"), "conv_L_cache"));
    CHECK(contains(error_of("sliding_window", "null"), "is null, but layers have windows"));
    CHECK(contains(error_of("layer_types", R"(["conv"])"), "has 1 entries"));
    CHECK(contains(error_of("num_hidden_layers", "25"), "num_hidden_layers is 25"));
    CHECK(contains(error_of("rope_parameters", R"({"rope_type":"default"})"),
                   "needs a rope for every kind of layer"));
    const auto unread = [](const char* key) {
      return model_error([&] { plan_of(published, {{"rope_parameters", ""}, {key, "0.5"}}); });
    };
    CHECK(contains(unread("rope_theta"), "rope_theta: is not supported, only null"));
    CHECK(contains(unread("partial_rotary_factor"), "partial_rotary_factor: is not supported"));
  }
}

}  // namespace lfm3_test
