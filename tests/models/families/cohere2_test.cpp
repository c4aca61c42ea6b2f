#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace cohere2_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { fixture_plan("cohere2", {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/cohere2") {
  TEST_CASE("attention beside a feed-forward; three windows with a rope, then all without one") {
    const Plan plan = plan_of("command-r7b");
    REQUIRE(plan.layers.size() == 32);
    for (std::size_t layer = 0; layer < 32; ++layer) {
      const Block& block = plan.layers[layer].blocks.at(0);
      CHECK(plan.layers[layer].blocks.size() == 1);
      CHECK(block.norm == Norm::layer);
      CHECK(std::get<Mlp>(block.parts.at(1)).hidden == 14336);
      const bool is_full = layer % 4 == 3;
      CHECK(attention(plan, layer).window == (is_full ? 0 : 4096));
      CHECK(attention(plan, layer).rope.has_value() == !is_full);
    }
    CHECK(attention(plan, 0).rope->neighbours);
    CHECK(attention(plan, 0).rope->theta == 50000.0);
    CHECK(plan.final_norm == Norm::layer);
    CHECK(plan.logits_scale == 0.25F);
    CHECK(plan.tied_head);
  }

  TEST_CASE("layers as they are listed, and what is not said") {
    const Plan odd = fixture_plan("cohere2-odd");
    for (std::size_t layer = 0; layer < 3; ++layer) {
      CHECK(attention(odd, layer).window == (layer == 2 ? 0 : 21));
    }
    CHECK(!odd.tied_head);
    const Plan unsaid = fixture_plan(
        "cohere2", {{"sliding_window_pattern", ""}, {"sliding_window", ""}, {"logit_scale", ""}});
    CHECK(attention(unsaid, 1).window == 4096);
    CHECK(attention(unsaid, 3).window == 0);
    CHECK(unsaid.logits_scale == 0.0625F);
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act: \"gelu\" is not supported"));
    CHECK(contains(error_of("attention_bias", "true"), "attention_bias: true is not supported"));
    CHECK(contains(error_of("use_qk_norm", "true"), "use_qk_norm: true is not supported"));
    CHECK(contains(error_of("use_parallel_block", "false"), "use_parallel_block: false is not"));
    CHECK(contains(error_of("head_dim", "18"), "head_dim: must be hidden_size / num_attention_"));
    CHECK(contains(error_of("partial_rotary_factor", "0.5"),
                   "partial_rotary_factor: below 1 is not supported"));
  }
}

}  // namespace cohere2_test
