#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace gemma3n_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* own = "gemma3n";      // 4 streams, the first active
constexpr const char* odd = "gemma3n-odd";  // 3 streams, the second active, nothing scaled

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { fixture_plan(own, {{key, value}}); });
}

const Attention& attention(const Plan& plan, std::size_t layer) {
  return std::get<Attention>(plan.layers.at(layer).blocks.at(0).parts.at(0));
}

const Mlp& mlp(const Plan& plan, std::size_t layer) {
  return std::get<Mlp>(plan.layers.at(layer).blocks.at(1).parts.at(0));
}

}  // namespace

TEST_SUITE("models/families/gemma3n") {
  TEST_CASE("several streams, of which one is active") {
    const Plan plan = fixture_plan(own), other = fixture_plan(odd);
    REQUIRE(plan.altup);
    CHECK(plan.altup->streams == 4);
    CHECK(plan.altup->active == 0);
    CHECK(plan.altup->scales_output);
    REQUIRE(other.altup);
    CHECK(other.altup->streams == 3);
    CHECK(other.altup->active == 1);
    CHECK(!other.altup->scales_output);
    CHECK(contains(error_of("altup_num_inputs", "9"), "altup_num_inputs"));
    CHECK(contains(error_of("altup_num_inputs", "1"), "altup_num_inputs"));
    CHECK(contains(error_of("altup_active_idx", "4"), "altup_active_idx"));
  }

  TEST_CASE("a layer is attention with a low-rank residual, a feed-forward, its own embedding") {
    const Plan plan = fixture_plan(own);
    CHECK(plan.low_rank() == 8);
    REQUIRE(plan.layer_inputs);
    CHECK(plan.layer_inputs->vocab == 131);
    for (const Layer& layer : plan.layers) {
      REQUIRE(layer.blocks.size() == 3);
      CHECK(layer.blocks[0].low_rank == 8);
      CHECK(layer.blocks[1].low_rank == 0);
      CHECK(layer.blocks[2].to_others);
      CHECK(layer.blocks[2].norm == Norm::none);
      CHECK(std::get<LayerInput>(layer.blocks[2].parts.at(0)).width == 12);
    }
    CHECK(attention(plan, 0).scale == 1.0F);
    CHECK(attention(plan, 0).value_norm);
    CHECK(attention(plan, 0).qk_norm == Norm::rms);
    CHECK(attention(plan, 0).rope->theta == 500.0);
    CHECK(attention(plan, 1).rope->theta == 1e6);
    CHECK(attention(plan, 0).window == 8);
    CHECK(attention(plan, 3).kv_of == 2);
    CHECK(attention(plan, 4).kv_of == 1);
    CHECK(plan.logits_cap == 5.0F);
  }

  TEST_CASE("widths and sparsity are of every layer") {
    const Plan plan = fixture_plan(own);
    CHECK(mlp(plan, 0).hidden == 96);
    CHECK(mlp(plan, 3).hidden == 64);
    REQUIRE(mlp(plan, 0).gate_deviations);
    CHECK(std::fabs(*mlp(plan, 0).gate_deviations - 0.8416212F) < 1e-6F);  // of 0.8
    CHECK(std::fabs(*mlp(plan, 1).gate_deviations - 0.2533471F) < 1e-6F);  // of 0.6
    CHECK(!mlp(plan, 2).gate_deviations);
    CHECK(contains(mlp(plan, 0).text().text, "96 wide, sparse gated gelu_tanh"));
    const Plan one = fixture_plan(own, {{"intermediate_size", "40"}});
    CHECK(mlp(one, 0).hidden == 40);
    CHECK(mlp(one, 4).hidden == 40);
    CHECK(contains(error_of("intermediate_size", "[40, 40]"), "has 2 entries for 5 layers"));
    CHECK(contains(error_of("activation_sparsity_pattern", "[0.5]"), "has 1 entries for 5 layers"));
    CHECK(contains(error_of("activation_sparsity_pattern", "[0, 0, 1, 0, 0]"), "from 0 to 0.9999"));
    CHECK(contains(error_of("activation_sparsity_pattern", "[0, 0, -0.1, 0, 0]"), "holds -0.1"));
  }

  TEST_CASE("what is absent is as transformers has it") {
    const Plan plan = plan_of(Config::from_text(R"({"model_type":"gemma3n_text"})", "config.json"),
                              /*with_drafts=*/false);
    REQUIRE(plan.layers.size() == 35);
    CHECK(plan.vocab == 262400);
    CHECK(plan.layer_inputs->vocab == 262144);
    CHECK(plan.altup->streams == 4);
    CHECK(plan.low_rank() == 64);
    CHECK(plan.logits_cap == 30.0F);
    CHECK(plan.tied_head);
    CHECK(attention(plan, 4).window == 0);
    CHECK(attention(plan, 5).window == 512);
    CHECK(attention(plan, 19).kv_of == -1);
    CHECK(attention(plan, 20).kv_of == 18);
    CHECK(attention(plan, 34).kv_of == 19);
    CHECK(std::fabs(*mlp(plan, 9).gate_deviations - 1.6448536F) < 1e-6F);
    CHECK(!mlp(plan, 10).gate_deviations);
    CHECK(mlp(plan, 34).hidden == 16384);
  }

  TEST_CASE("what no op takes is refused") {
    CHECK(contains(error_of("hidden_activation", "\"gelu\""), "hidden_activation"));
    CHECK(contains(error_of("attention_bias", "true"), "attention_bias"));
    CHECK(contains(error_of("use_bidirectional_attention", "true"), "use_bidirectional_attention"));
    CHECK(contains(error_of("num_kv_shared_layers", "4"), "leaves layer 1 no layer"));
  }
}

}  // namespace gemma3n_test
