#include <nlohmann/json.hpp>

#include "tests/models/golden.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace qwen2_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;
using namespace hyb::testing;

namespace {

Config config_with(const std::string& keys) {
  Json json = parse_json(content(golden_folder / "qwen2" / "config.json"), "config.json");
  json.update(parse_json(keys, "keys"));
  return Config::from_text(to_text(json), "config.json");
}

std::string error_of(const std::string& keys) {
  return model_error([&] { qwen2::family.plan(config_with(keys)); });
}

}  // namespace

TEST_SUITE("models/families/qwen2") {
  TEST_CASE("Llama's layers with biases of q, k and v") {
    const Plan plan = qwen2::family.plan(config_with("{}"));
    REQUIRE(plan.layers.size() == 3);
    const auto& attention = std::get<Attention>(plan.layers[2].blocks.at(0).parts.at(0));
    CHECK(attention.biases);
    CHECK(!attention.output_bias);
    CHECK(attention.head_dim == 10);
    CHECK(contains(attention.text().text, ", biases of q, k and v"));
    CHECK(std::get<Mlp>(plan.layers[2].blocks.at(1).parts.at(0)).hidden == 56);
    CHECK(qwen2::family.plan(config_with(R"({"layer_types":["full_attention","full_attention",
                                      "full_attention"]})")) == plan);
  }

  TEST_CASE("windows and positions of pictures are refused by name") {
    CHECK(contains(error_of(R"({"use_sliding_window":true})"),
                   "use_sliding_window: true is not supported"));
    CHECK(contains(error_of(R"({"use_mrope":true})"), "use_mrope: true is not supported"));
    CHECK(contains(error_of(R"({"layer_types":["full_attention","sliding_attention",
                                 "full_attention"]})"),
                   "layer_types"));
  }
}

}  // namespace qwen2_test
