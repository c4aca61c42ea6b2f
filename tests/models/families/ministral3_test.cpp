#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace ministral3_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* usual = "ministral3";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { fixture_plan(usual, {{key, value}}); });
}

const Attention& attention(const Plan& plan) {
  return std::get<Attention>(plan.layers.at(0).blocks.at(0).parts.at(0));
}

std::string rope(const std::string& more) {
  return R"({"rope_type":"yarn","factor":4,"rope_theta":500)" + more + "}";
}

}  // namespace

TEST_SUITE("models/families/ministral3") {
  TEST_CASE("queries grow with the position, in steps of the context of the training") {
    const Plan plan = fixture_plan(usual);
    CHECK(attention(plan).query_scale.beta == 0.4F);
    CHECK(attention(plan).query_scale.period == 8);
    CHECK(attention(plan).query_scale.offset == 0);
    CHECK(contains(attention(plan).text().text, "queries grow every 8 positions"));
    const Plan constant =
        fixture_plan(usual, {{"rope_parameters", rope(R"(,"original_max_position_embeddings":8,
                                            "llama_4_scaling_beta":0)")}});
    CHECK(attention(constant).query_scale.beta == 0.0F);
    CHECK(!contains(attention(constant).text().text, "queries"));
  }

  TEST_CASE("the window is that of all layers") {
    CHECK(attention(fixture_plan(usual)).window == 0);
    for (const Layer& layer : fixture_plan("ministral3-window").layers) {
      CHECK(std::get<Attention>(layer.blocks[0].parts[0]).window == 19);
    }
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("rope_parameters", ""), "rope_parameters: is missing"));
    CHECK(contains(error_of("rope_parameters", rope(R"(,"llama_4_scaling_beta":-1,
                                "original_max_position_embeddings":8)")),
                   "llama_4_scaling_beta: must be from 0 to 100, is -1"));
    CHECK(contains(error_of("rope_parameters", rope(R"(,"llama_4_scaling_beta":0.1)")),
                   "original_max_position_embeddings"));
    CHECK(contains(error_of("rope_parameters", rope(R"(,"original_max_position_embeddings":8)")),
                   "llama_4_scaling_beta: is missing"));
    CHECK(contains(error_of("original_max_position_embeddings", "16"), "is not supported"));
    CHECK(contains(error_of("layer_types", R"(["full_attention"])"), "layer_types"));
    CHECK(contains(error_of("hidden_act", R"("gelu")"), "hidden_act"));
  }
}

}  // namespace ministral3_test
