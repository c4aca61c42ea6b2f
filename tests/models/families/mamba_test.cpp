#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace mamba_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* name = "falcon-mamba-7b";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(name, {{key, value}}); });
}

const S6& s6(const Plan& plan) { return std::get<S6>(plan.layers[0].blocks[0].parts.at(0)); }

}  // namespace

TEST_SUITE("models/families/mamba") {
  TEST_CASE("a mixer in every layer, with norms of dt, B and C in Falcon Mamba alone") {
    const Plan falcon = plan_of(name), plain = plan_of(name, {{"model_type", "\"mamba\""}});
    REQUIRE(falcon.layers.size() == 64);
    for (const Layer& layer : falcon.layers) {
      REQUIRE(layer.blocks.size() == 1);
      CHECK(layer.blocks[0].parts == std::vector<Part>{s6(falcon)});
    }
    CHECK(s6(falcon).channels == 8192);  // not expand x hidden_size
    CHECK(s6(falcon).dt_rank == 256);
    CHECK(s6(falcon).norms == S6Norms::plain);
    CHECK(s6(falcon).dt_norm_eps == 1e-6F);
    CHECK(s6(plain).norms == S6Norms::none);
    CHECK(!falcon.tied_head);
  }

  TEST_CASE("absent keys are those of transformers") {
    const Plan plan = plan_of(name);
    for (const char* key : {"state_size", "conv_kernel", "use_conv_bias", "time_step_rank",
                            "mixer_rms_eps", "residual_in_fp32"}) {
      CAPTURE(key);
      CHECK(plan_of(name, {{key, ""}}) == plan);
    }
    CHECK(plan_of(name, {{"time_step_rank", "\"auto\""}}) == plan);
    CHECK(plan_of(name, {{"tie_word_embeddings", ""}}).tied_head);
    CHECK(s6(plan_of(name, {{"intermediate_size", ""}})).channels == 65536);
    CHECK(s6(plan_of(name, {{"intermediate_size", ""}, {"expand", ""}})).channels == 8192);
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of("use_bias", "true"), "use_bias"));
    CHECK(contains(error_of("rms_norm", "false"), "rms_norm"));
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "\"gelu\""));
    CHECK(contains(error_of("state_size", "257"), "states of Mamba-1"));
    CHECK(contains(error_of("conv_kernel", "5"), "conv_kernel"));
    CHECK(contains(error_of("mixer_rms_eps", "0.0"), "mixer_rms_eps"));
  }
}

}  // namespace mamba_test
