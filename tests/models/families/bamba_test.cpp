#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace bamba_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* name = "bamba-9b";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(name, {{key, value}}); });
}

}  // namespace

TEST_SUITE("models/families/bamba") {
  TEST_CASE("half of each head turns, whether config.json says so or not") {
    for (const char* factor : {"", "0.5"}) {
      const Plan plan = plan_of(name, {{"partial_rotary_factor", factor}});
      REQUIRE(plan.layers.size() == 32);
      const auto& attention = std::get<Attention>(plan.layers[9].blocks[0].parts[0]);
      CHECK(attention.rope->rotary_dim() == 64);
      CHECK(attention.rope->theta == 10000.0);
      CHECK(!attention.qk_norm);
    }
  }

  TEST_CASE("Mamba-2 everywhere else, with factors of one") {
    const Plan plan = plan_of(name);
    int attention = 0;
    for (const Layer& layer : plan.layers) {
      attention += std::holds_alternative<Attention>(layer.blocks[0].parts[0]);
      CHECK(std::get<Mlp>(layer.blocks[1].parts[0]).hidden == 14336);
      for (const Block& block : layer.blocks) {
        CHECK(std::visit([](const auto& part) { return part.output_scale; }, block.parts[0]) ==
              1.0F);
      }
    }
    CHECK(attention == 3);
    const auto& ssd = std::get<Ssd>(plan.layers[0].blocks[0].parts[0]);
    CHECK(ssd.heads == 128);
    CHECK(ssd.inner() == 8192);
    CHECK(plan.embedding_scale == 1.0F);
    CHECK(!plan.tied_head);
  }

  TEST_CASE("layer_types replaces the list of indices") {
    const std::string types = layer_types(32, {0, 31}, "full_attention", "linear_attention");
    const Plan plan = plan_of(name, {{"attn_layer_indices", ""}, {"layer_types", types}});
    CHECK(std::holds_alternative<Attention>(plan.layers[31].blocks[0].parts[0]));
    CHECK(std::holds_alternative<Ssd>(plan.layers[9].blocks[0].parts[0]));
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of("attn_layer_indices", "[32]"), "attn_layer_indices"));
    CHECK(contains(error_of("partial_rotary_factor", "1.0"), "fixed at 0.5"));
    CHECK(contains(error_of("attn_rotary_emb", "32"), "half of a head"));
    CHECK(contains(error_of("mamba_proj_bias", "true"), "mamba_proj_bias"));
    CHECK(contains(error_of("mlp_bias", "true"), "mlp_bias"));
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "\"gelu\""));
  }
}

}  // namespace bamba_test
