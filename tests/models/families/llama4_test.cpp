#include <doctest/doctest.h>

#include "models/weight_index.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace llama4_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { fixture_plan("llama4", {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}
const Part& feed_forward(const Plan& plan, std::size_t layer) {
  return plan.layers.at(layer).blocks.at(1).parts.at(0);
}

}  // namespace

TEST_SUITE("models/families/llama4") {
  TEST_CASE("three layers of four turn and see chunks, the fourth sees all without positions") {
    const Plan plan = plan_of("llama-4-scout");
    REQUIRE(plan.layers.size() == 48);
    for (std::size_t layer = 0; layer < 48; ++layer) {
      const Attention& found = attention(plan, layer);
      const bool is_full = layer % 4 == 3;
      CHECK(found.rope.has_value() == !is_full);
      CHECK(found.chunk == (is_full ? 0 : 8192));
      CHECK(found.weightless_norm == !is_full);
      CHECK(found.query_scale.beta == (is_full ? 0.1F : 0.0F));
    }
    CHECK(attention(plan, 0).text().text ==
          "40 heads x 128, 8 kv heads, rope over 128 dims, theta 500000, llama3 x 16, chunks of "
          "8192, q/k norm without weights");
    CHECK(attention(plan, 3).text().text ==
          "40 heads x 128, 8 kv heads, no positions, queries grow every 8192 positions");
    CHECK(attention(plan, 3).query_scale.offset == 1);
    CHECK(attention(plan, 0).rope->neighbours);
  }

  TEST_CASE("llama3's factors at one place: slow pairs are slowed, the others stay") {
    const RopeParameters rope = *attention(plan_of("llama-4-scout"), 0).rope;
    const double turns = 8192 / (2 * 3.14159265358979323846);  // of frequency 1 in the context
    for (std::size_t i = 0; i < 64; ++i) {
      const double usual = std::pow(500000.0, -2.0 * static_cast<double>(i) / 128);
      CHECK(rope.frequencies.at(i) ==
            doctest::Approx(usual * turns < 1 ? usual / 16 : usual).epsilon(1e-12));
    }
  }

  TEST_CASE("where experts are, and what they see") {
    const Moe scout = std::get<Moe>(feed_forward(plan_of("llama-4-scout"), 0));
    CHECK(scout.experts == 16);
    CHECK(scout.active == 1);
    CHECK(scout.shared_hidden == 8192);
    CHECK(scout.text().text.ends_with("weighed inputs"));
    const Plan odd = fixture_plan("llama4-odd");
    for (std::size_t layer = 0; layer < 4; ++layer) {
      CHECK(std::holds_alternative<Moe>(feed_forward(odd, layer)) == (layer % 2 == 1));
    }
    CHECK(std::get<Mlp>(feed_forward(odd, 0)).hidden == 41);
    const Plan listed = fixture_plan("llama4-odd", {{"moe_layers", "[0]"}});
    CHECK(std::holds_alternative<Moe>(feed_forward(listed, 0)));
    CHECK(std::holds_alternative<Mlp>(feed_forward(listed, 1)));
  }

  TEST_CASE("options off, and layers as they are listed") {
    const Plan plan = fixture_plan(
        "llama4",
        {{"attn_temperature_tuning", "false"},
         {"use_qk_norm", "false"},
         {"layer_types", R"(["full_attention", "full_attention", "chunked_attention"])"}});
    CHECK(attention(plan, 1).query_scale.beta == 0.0F);
    CHECK(!attention(plan, 0).weightless_norm);
    CHECK(attention(plan, 0).chunk == 0);
    CHECK(attention(plan, 2).chunk == 9);
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act: \"gelu\" is not supported"));
    CHECK(contains(error_of("attention_bias", "true"), "attention_bias: true is not supported"));
    CHECK(contains(error_of("num_experts_per_tok", "2"),
                   "num_experts_per_tok: 2 is not supported, only 1"));
    CHECK(contains(error_of("no_rope_layers", "[1, 0]"),
                   "no_rope_layers: has 2 entries, num_hidden_layers is 3"));
    CHECK(contains(error_of("partial_rotary_factor", "0.5"),
                   "partial_rotary_factor: below 1 is not supported"));
    CHECK(contains(error_of("moe_layers", "[3]"), "moe_layers"));
    CHECK(contains(error_of("layer_types", R"(["full_attention", "sliding_attention", "x"])"),
                   "layer_types"));
  }
}

}  // namespace llama4_test
