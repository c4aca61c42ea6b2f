#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace granite_swa_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { fixture_plan("granite-swa", {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/granite_swa") {
  TEST_CASE("every fourth layer sees all positions, and every layer has its theta and sinks") {
    const Plan plan = fixture_plan("granite-swa");
    for (std::size_t layer = 0; layer < 5; ++layer) {
      CAPTURE(layer);
      CHECK(attention(plan, layer).window == (layer % 4 == 0 ? 0 : 7));
      CHECK(attention(plan, layer).sinks);
      CHECK(attention(plan, layer).rope.has_value() == (layer != 0 && layer != 4));
    }
    CHECK(*attention(plan, 2).rope == RopeParameters::plain(12, 500.0));
    CHECK(attention(plan, 2).scale == 0.35F);
    CHECK(contains(attention(plan, 2).text().text, "window of 7, sinks"));
  }

  TEST_CASE("layer_types, a usual window and one theta for all layers") {
    const Plan plan = fixture_plan(
        "granite-swa", {{"layer_types", layer_types(5, {1}, "full_attention", "sliding_attention")},
                        {"layer_rope_theta", ""},
                        {"sliding_window", ""}});
    CHECK(attention(plan, 0).window == 128);
    CHECK(attention(plan, 1).window == 0);
    CHECK(attention(plan, 4).rope->theta == 10000.0);
  }

  TEST_CASE("experts with a shared one, or without") {
    const auto moe = [](const Plan& plan) {
      return std::get<Moe>(plan.layers.at(0).blocks.at(1).parts.at(0));
    };
    const Moe found = moe(fixture_plan("granite-swa-moe"));
    CHECK(found.experts == 5);
    CHECK(found.active == 2);
    CHECK(found.hidden == 24);
    CHECK(found.shared_hidden == 20);
    CHECK(found.score == RouterScore::softmax_of_selected);
    CHECK(found.output_scale == 0.85F);
    CHECK(moe(fixture_plan("granite-swa-moe-plain")).shared_hidden == 0);
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("layer_rope_theta", "[1, 2]"), "has 2 entries"));
    CHECK(contains(error_of("layer_rope_theta", "[1, 2, -3, 4, 5]"), "entry 2: must be finite"));
    CHECK(contains(error_of("sliding_window", "null"), "is null, but layers have windows"));
    CHECK(contains(error_of("layer_types", layer_types(5, {}, "", "chunked_attention")),
                   "\"chunked_attention\" is not a known kind"));
    CHECK(contains(error_of("rope_scaling", R"({"rope_type":"linear","factor":4})"),
                   "layer_rope_theta: beside a scaled rope"));
    CHECK(contains(error_of("attention_bias", "true"), "attention_bias: true is not supported"));
  }
}

}  // namespace granite_swa_test
