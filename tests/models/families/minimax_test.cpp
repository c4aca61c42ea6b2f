#include <doctest/doctest.h>

#include "models/weight_index.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace minimax_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* published = "minimax-text-01";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(published, {{key, value}}); });
}

const Part& mixer(const Plan& plan, std::size_t layer) {
  return plan.layers.at(layer).blocks.at(0).parts.at(0);
}

}  // namespace

TEST_SUITE("models/families/minimax") {
  TEST_CASE("seven layers of lightning attention to one of attention, factors on what is carried") {
    const Plan plan = plan_of(published);
    REQUIRE(plan.layers.size() == 80);
    const auto& first = std::get<Lightning>(mixer(plan, 0));
    CHECK(first.text().text == "lightning attention, 64 heads x 128");
    CHECK(first.pace == doctest::Approx(1.00001));
    CHECK(std::get<Lightning>(mixer(plan, 78)).pace == doctest::Approx(1.0 / 79 + 1e-5));
    CHECK(std::get<Attention>(mixer(plan, 7)).text().text ==
          "64 heads x 128, 8 kv heads, rope over 64 dims, theta 10000000");
    for (const Layer& layer : plan.layers) {
      for (const Block& block : layer.blocks) {
        CHECK(block.norm == Norm::rms);
        CHECK(block.carried_norm == doctest::Approx(3.55656));
        CHECK(!block.post_norm);
      }
      const auto& moe = std::get<Moe>(layer.blocks.at(1).parts.at(0));
      CHECK(moe.experts == 32);
      CHECK(moe.active == 2);
      CHECK(moe.hidden == 9216);
      CHECK(moe.renormalize);
    }
  }

  TEST_CASE("in transformers' spelling the factors have other names, and layers alternate") {
    const Plan plan = plan_of(published, {{"model_type", "\"minimax\""},
                                          {"attn_type_list", ""},
                                          {"rotary_dim", ""},
                                          {"num_hidden_layers", "4"},
                                          {"full_attn_alpha_factor", "2"},
                                          {"full_attn_beta_factor", "0.5"},
                                          {"mlp_alpha_factor", "3"}});
    REQUIRE(plan.layers.size() == 4);
    const auto& attention = std::get<Attention>(mixer(plan, 0));
    CHECK(attention.rope->rotary_dim() == 128);
    CHECK(attention.output_scale == 0.5F);
    CHECK(plan.layers[0].blocks[0].carried_norm == 2.0F);
    CHECK(plan.layers[1].blocks[0].carried_norm == 1.0F);
    CHECK(plan.layers[1].blocks[1].carried_norm == 3.0F);
    CHECK(std::holds_alternative<Lightning>(mixer(plan, 1)));
  }

  TEST_CASE("heads that lightning attention does not take, and rope's width given twice") {
    CHECK(contains(error_of("head_dim", "320"), "head_dim: is 320, at most 256 is supported"));
    CHECK(contains(error_of("partial_rotary_factor", "0.5"), "rotary_dim: is there beside"));
  }

  TEST_CASE("rates and taps are in no file") {
    std::size_t small = 0;
    for (const RequiredWeight& weight : required_weights(plan_of(published), minimax::family)) {
      CHECK(!weight.names.front().empty());
      if (weight.names.front().find("layers.0.self_attn") != std::string::npos) ++small;
    }
    CHECK(small == 4);
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of("postnorm", "false"), "postnorm: false is not supported"));
    CHECK(contains(error_of("postnorm", ""), "postnorm: false is not supported"));
    CHECK(contains(error_of("shared_intermediate_size", "8"), "shared_intermediate_size"));
    CHECK(contains(error_of("sliding_window", "64"), "sliding_window"));
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act"));
    CHECK(contains(error_of("attn_type_list", "[0, 1]"), "has 2 entries"));
    CHECK(contains(error_of("attn_type_list", ""), "attn_type_list"));
    CHECK(contains(error_of("rotary_dim", "256"), "rotary_dim"));
    CHECK(contains(model_error([] {
                     plan_of(published, {{"num_attention_heads", "48"}, {"head_dim", "128"}});
                   }),
                   "only powers of two"));
  }
}

}  // namespace minimax_test
