#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace mellum_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* usual = "mellum";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { fixture_plan(usual, {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/mellum") {
  TEST_CASE("a rope for each kind of layers, a window for one of them") {
    const Plan plan = fixture_plan(usual);
    CHECK(attention(plan, 0).window == 9);
    CHECK(attention(plan, 0).rope->theta == 500.0);
    CHECK(attention(plan, 2).window == 0);
    CHECK(attention(plan, 2).rope->theta == 20000.0);
    CHECK(attention(plan, 2).qk_norm == Norm::rms);
    const Plan unsaid = fixture_plan(usual, {{"rope_parameters", ""}});
    CHECK(attention(unsaid, 0).rope->theta == 10000.0);
    CHECK(attention(unsaid, 2).rope->theta == 500000.0);
  }

  TEST_CASE("some layers are dense; without a list all have experts") {
    const auto is_sparse = [](const Plan& plan, std::size_t layer) {
      return std::holds_alternative<Moe>(plan.layers.at(layer).blocks.at(1).parts.at(0));
    };
    const Plan mixed = fixture_plan(usual), all = fixture_plan(usual, {{"mlp_layer_types", ""}});
    CHECK(!is_sparse(mixed, 0));
    CHECK(is_sparse(mixed, 1));
    CHECK(is_sparse(all, 0));
    const Plan unsaid = fixture_plan(usual, {{"norm_topk_prob", ""}});
    CHECK(std::get<Moe>(unsaid.layers[1].blocks[1].parts[0]).renormalize);
  }

  TEST_CASE("yarn keeps fast pairs, slows slow ones, and lengthens what it rotates") {
    const Attention found = attention(fixture_plan("mellum-yarn"), 0);
    const std::vector<double>& speeds = found.rope->frequencies;
    REQUIRE(speeds.size() == 11);
    CHECK(speeds.front() == 1.0);
    CHECK(speeds.back() == doctest::Approx(std::pow(300.0, -20.0 / 22) / 4));
    CHECK(found.rope->magnitude == doctest::Approx(0.1 * std::log(4.0) + 1));
    CHECK(contains(found.text().text, "yarn x 4"));
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("mlp_layer_types", R"(["dense","sparse"])"), "has 2 entries"));
    CHECK(contains(error_of("mlp_layer_types", R"(["dense","sparse","moe"])"), "entry 2: \"moe\""));
    CHECK(contains(error_of("rope_parameters", R"({"rope_type":"default","rope_theta":5})"),
                   "needs a rope for every kind of layer"));
    CHECK(contains(error_of("rope_parameters",
                            R"({"full_attention":{"rope_type":"longrope","factor":2},
                                "sliding_attention":{"rope_type":"default"}})"),
                   "\"longrope\" is not supported"));
    CHECK(contains(error_of("rope_parameters", R"({"full_attention":{"rope_type":"default"}})"),
                   "rope_parameters.sliding_attention: is not there"));
    CHECK(contains(error_of("rope_parameters",
                            R"({"full_attention":{"rope_type":"yarn","factor":2,"truncate":false},
                                "sliding_attention":{"rope_type":"default"}})"),
                   "truncate: false is not supported"));
  }
}

}  // namespace mellum_test
