#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace nemotron_h_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of("nemotron-3-nano-30b-a3b", {{key, value}}); });
}

template <typename T>
int count(const Plan& plan) {
  int found = 0;
  for (const Layer& layer : plan.layers) {
    found += layer.blocks.size() == 1 && std::holds_alternative<T>(layer.blocks[0].parts.at(0));
  }
  return found;
}

}  // namespace

TEST_SUITE("models/families/nemotron_h") {
  TEST_CASE("one sub-layer per letter of the pattern") {
    const Plan nano = plan_of("nemotron-3-nano-30b-a3b");
    CHECK(nano.layers.size() == 52);
    CHECK(count<Ssd>(nano) == 23);
    CHECK(count<Moe>(nano) == 23);
    CHECK(count<Attention>(nano) == 6);
    CHECK(!nano.tied_head);
    CHECK(!nano.has_rope());
    const Ssd& ssd = std::get<Ssd>(nano.layers[0].blocks[0].parts[0]);
    CHECK(ssd.inner() == 4096);  // not expand x hidden_size
    CHECK(ssd.norm_groups == 8);
    const Moe& moe = std::get<Moe>(nano.layers[1].blocks[0].parts[0]);
    CHECK(moe.score == RouterScore::sigmoid);
    CHECK(moe.correction_bias);
    CHECK(moe.scale == 2.5F);
    CHECK(moe.shared_hidden == 3712);
    CHECK(moe.activation == kernels::Activation{kernels::ActivationFunction::relu2, false});

    const Plan dense = plan_of("nemotron-nano-12b-v2");
    CHECK(count<Ssd>(dense) == 28);
    CHECK(count<Mlp>(dense) == 28);
    CHECK(count<Attention>(dense) == 6);
  }

  TEST_CASE("names of layers instead of letters") {
    const Plan plan = plan_of("nemotron-3-nano-30b-a3b",
                              {{"hybrid_override_pattern", ""},
                               {"num_hidden_layers", "4"},
                               {"layers_block_type", R"(["mamba","full_attention","mlp","moe"])"}});
    CHECK(count<Ssd>(plan) == 1);
    CHECK(count<Attention>(plan) == 1);
    CHECK(count<Mlp>(plan) == 1);
    CHECK(count<Moe>(plan) == 1);
  }

  TEST_CASE("state in bf16 only where the config says so") {
    CHECK(plan_of("nemotron-3-nano-30b-a3b").state_dtype == DType::f32);
    CHECK(plan_of("nemotron-3-nano-30b-a3b", {{"mamba_ssm_cache_dtype", "\"bfloat16\""}})
              .state_dtype == DType::bf16);
  }

  TEST_CASE("limits of the time step, in both spellings") {
    for (const char* key : {"time_step_limit", "mamba_dt_limit"}) {
      const Plan plan = plan_of("nemotron-3-nano-30b-a3b", {{key, "[0.25, 0.5]"}});
      const Ssd& ssd = std::get<Ssd>(plan.layers[0].blocks[0].parts[0]);
      CHECK(ssd.shape.dt_min == 0.25F);
      CHECK(ssd.shape.dt_max == 0.5F);
    }
    CHECK(contains(error_of("time_step_limit", "[1]"), "time_step_limit: must be two numbers"));
  }

  TEST_CASE("drafting layers may be counted") {
    CHECK(error_of("num_hidden_layers", "53") != "");
    CHECK(model_error([] {
            plan_of("nemotron-3-nano-30b-a3b",
                    {{"num_hidden_layers", "53"}, {"num_nextn_predict_layers", "1"}});
          }) == "");
  }

  TEST_CASE("a draft layer: attention, then experts, in both spellings; others are none") {
    const auto draft = [](const std::vector<Edit>& edits) {
      return plan_of(preset("nemotron-3-super-120b-a12b", edits), true).draft;
    };
    CHECK_FALSE(plan_of(preset("nemotron-3-super-120b-a12b"), false).draft);
    const std::vector<Edit> named = {{"mtp_hybrid_override_pattern", ""},
                                     {"mtp_layers_block_type", R"(["attention","moe"])"}};
    for (const std::vector<Edit>& edits : {std::vector<Edit>{}, named}) {
      const std::optional<DraftLayer> found = draft(edits);
      REQUIRE(found);
      CHECK(found->norm == Norm::rms);
      REQUIRE(found->layers.size() == 2);
      const Attention& attention = std::get<Attention>(found->layers[0].blocks.at(0).parts.at(0));
      CHECK(attention.heads == 32);
      CHECK(attention.has_keys_alone);
      CHECK_FALSE(attention.rope);
      CHECK(std::get<Moe>(found->layers[1].blocks.at(0).parts.at(0)).latent == 1024);
    }
    CHECK_FALSE(draft({{"num_nextn_predict_layers", ""}}));
    CHECK_FALSE(draft({{"num_nextn_predict_layers", "2"}}));
    CHECK_FALSE(draft({{"mtp_hybrid_override_pattern", ""}}));
    CHECK_FALSE(draft({{"mtp_hybrid_override_pattern", "\"*-\""}}));
    CHECK_FALSE(plan_of(preset("nemotron-3-nano-30b-a3b"), true).draft);
  }

  TEST_CASE("what is not supported or contradicts itself is an error by name") {
    CHECK(contains(error_of("num_hidden_layers", "51"), "has 52 layers, num_hidden_layers is 51"));
    CHECK(contains(error_of("hybrid_override_pattern", "\"" + std::string(51, 'M') + "X\""),
                   "layer 51: \"X\" is not one of M, *, - and E"));
    CHECK(contains(error_of("hybrid_override_pattern", "\"\""), "names no layer"));
    CHECK(contains(error_of("hybrid_override_pattern", "\"" + std::string(5000, 'M') + "\""),
                   "has 5000 layers, at most 4096"));
    CHECK(contains(error_of("layers_block_type", "[\"mamba\"]"), "the same layers"));
    CHECK(contains(error_of("n_shared_experts", "0"), "n_shared_experts"));
    CHECK(contains(error_of("sliding_window", "128"), "sliding_window"));
    CHECK(contains(error_of("mlp_hidden_act", "\"silu\""), "mlp_hidden_act: \"silu\""));
    CHECK(contains(error_of("use_bias", "true"), "use_bias: true"));
    CHECK(contains(error_of("n_groups", "7"), "groups, which is 7"));
    CHECK(contains(error_of("n_group", "3"), "n_group, which is 3"));
    CHECK(contains(error_of("topk_group", "2"), "topk_group: is 2, n_group is 1"));
    CHECK(contains(error_of("num_experts_per_tok", "129"), "only 128 experts"));
  }
}

}  // namespace nemotron_h_test
