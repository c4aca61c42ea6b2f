#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace smollm3_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* published = "smollm3-3b";

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(published, {{key, value}}); });
}

}  // namespace

TEST_SUITE("models/families/smollm3") {
  TEST_CASE("the plan of SmolLM3-3B has positions in three of four layers and no windows") {
    const Plan plan = plan_of(published);
    REQUIRE(plan.layers.size() == 36);
    CHECK(plan.tied_head);
    for (std::size_t i = 0; i < 36; ++i) {
      CAPTURE(i);
      CHECK(attention(plan, i).rope.has_value() == ((i + 1) % 4 != 0));
      CHECK(attention(plan, i).window == 0);
    }
    CHECK(attention(plan, 0).kv_heads == 4);
    CHECK(attention(plan, 0).rope->theta == 5e6);
  }

  TEST_CASE("the list, or the interval without it, says which layers have positions") {
    CHECK(plan_of(published, {{"no_rope_layers", ""}}) == plan_of(published));
    const Plan third =
        plan_of(published, {{"no_rope_layers", ""}, {"no_rope_layer_interval", "3"}});
    CHECK(!attention(third, 2).rope);
    CHECK(attention(third, 3).rope);
    CHECK(contains(error_of("no_rope_layers", "[1,0]"), "has 2 entries, num_hidden_layers is 36"));
  }

  TEST_CASE("what is absent is what transformers takes") {
    const Plan plan = plan_of(
        published, {{"num_key_value_heads", ""}, {"tie_word_embeddings", ""}, {"rope_theta", ""}});
    CHECK(attention(plan, 0).kv_heads == 4);
    CHECK(attention(plan_of(published, {{"num_key_value_heads", "null"}}), 0).kv_heads == 16);
    CHECK(plan.tied_head);
    CHECK(attention(plan, 0).rope->theta == 2e6);
  }

  TEST_CASE("windows are where there are no positions, or where layer_types has them") {
    const Plan plan =
        plan_of(published,
                {{"use_sliding_window", "true"}, {"sliding_window", "128"}, {"layer_types", ""}});
    CHECK(attention(plan, 3).window == 128);
    CHECK(attention(plan, 4).window == 0);
    CHECK(
        attention(plan_of(published, {{"sliding_window", "128"}, {"layer_types", ""}}), 3).window ==
        0);
  }

  TEST_CASE("what is not supported is an error by name") {
    CHECK(contains(error_of("attention_bias", "true"), "attention_bias: true is not supported"));
    CHECK(contains(error_of("mlp_bias", "true"), "mlp_bias: true is not supported"));
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act: \"gelu\""));
  }
}

}  // namespace smollm3_test
