#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "models/weight_index.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace gpt_oss_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { fixture_plan("gpt-oss", {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

const Moe& experts(const Plan& plan) {
  return std::get<Moe>(plan.layers.at(0).blocks.at(1).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/gpt_oss") {
  TEST_CASE("every other layer has a window, all have sinks and biases") {
    const Plan plan = fixture_plan("gpt-oss");
    for (std::size_t layer = 0; layer < 3; ++layer) {
      CHECK(attention(plan, layer).window == (layer % 2 == 0 ? 9 : 0));
      CHECK(attention(plan, layer).sinks);
      CHECK(attention(plan, layer).biases);
    }
    CHECK(attention(fixture_plan("gpt-oss-odd"), 0).window == 0);
    CHECK(attention(fixture_plan("gpt-oss", {{"sliding_window", ""}}), 0).window == 128);
    CHECK(contains(attention(plan, 0).text().text, "window of 9, sinks, biases"));
  }

  TEST_CASE("yarn whose ends are not rounded") {
    const RopeParameters rope = *attention(fixture_plan("gpt-oss"), 0).rope;
    CHECK(rope.theta == 300.0);
    CHECK(rope.magnitude == doctest::Approx(0.1 * std::log(8.0) + 1));
    const RopeParameters rounded =
        *attention(fixture_plan("gpt-oss",
                                {{"rope_scaling",
                                  R"({"rope_type":"yarn","factor":8,"beta_fast":32,"beta_slow":1,)"
                                  R"("original_max_position_embeddings":32})"}}),
                   0)
             .rope;
    CHECK(rope.frequencies != rounded.frequencies);
  }

  TEST_CASE("experts with a clamped gate, chosen before the softmax") {
    const Moe found = experts(fixture_plan("gpt-oss"));
    CHECK(found.experts == 6);
    CHECK(found.active == 2);
    CHECK(found.hidden == 96);
    CHECK(found.score == RouterScore::softmax_of_selected);
    CHECK(found.activation.function == kernels::ActivationFunction::clamped_swiglu);
    CHECK(found.activation.alpha == 1.702F);
    CHECK(found.activation.limit == 1.5F);
    CHECK(experts(fixture_plan("gpt-oss-odd")).activation.alpha == 1.3F);
    CHECK(experts(fixture_plan("gpt-oss", {{"swiglu_limit", ""}})).activation.limit == 7.0F);
  }

  TEST_CASE("without files experts are counted as published, in MXFP4") {
    const Plan plan = fixture_plan("gpt-oss-odd");
    for (const RequiredWeight& weight : required_weights(plan, gpt_oss::family)) {
      if (weight.key.role != "moe.gate_up") continue;
      CHECK(weight.names.front().ends_with("gate_up_proj_blocks"));
      CHECK(weight.shape == std::vector<std::int64_t>{5, 74, 50});
    }
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("attention_bias", "false"), "attention_bias: false is not supported"));
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act: \"gelu\" is not supported"));
    CHECK(contains(error_of("swiglu_limit", "0"), "swiglu_limit: must be above 0 and at most"));
    CHECK(contains(error_of("rope_scaling", ""), "rope_parameters: is missing"));
    CHECK(contains(error_of("num_experts_per_tok", "7"), "only 6 experts can be chosen"));
    CHECK(
        contains(model_error([] {
                   fixture_plan("mellum", {{"quantization_config", R"({"quant_method":"mxfp4"})"}});
                 }),
                 "quantised by \"mxfp4\" are not supported"));
  }
}

}  // namespace gpt_oss_test
