#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace mamba2_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* name = "mamba-codestral-7b";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(name, {{key, value}}); });
}

const Ssd& ssd(const Plan& plan) { return std::get<Ssd>(plan.layers[0].blocks[0].parts.at(0)); }

}  // namespace

TEST_SUITE("models/families/mamba2") {
  TEST_CASE("a mixer in every layer and nothing else") {
    const Plan plan = plan_of(name);
    REQUIRE(plan.layers.size() == 64);
    for (const Layer& layer : plan.layers) {
      REQUIRE(layer.blocks.size() == 1);
      CHECK(layer.blocks[0].parts == std::vector<Part>{ssd(plan)});
    }
    CHECK(ssd(plan).inner() == 8192);
    CHECK(ssd(plan).norm_groups == 8);
    CHECK(ssd(plan).gate == SsdGate::gate_then_norm);
    CHECK(!plan.tied_head);
    CHECK(plan.positions_max == 0);
  }

  TEST_CASE("absent keys are those of transformers") {
    const Plan plan = plan_of(name);
    for (const char* key : {"num_heads", "head_dim", "n_groups", "state_size", "conv_kernel",
                            "expand", "use_conv_bias", "time_step_limit", "rms_norm"}) {
      CAPTURE(key);
      CHECK(plan_of(name, {{key, ""}}) == plan);
    }
  }

  TEST_CASE("the order of norm and gate and the type of the residual stream are no keys") {
    for (const char* key : {"norm_before_gate", "residual_in_fp32"}) {
      CHECK(plan_of(name, {{key, "false"}}) == plan_of(name, {{key, "true"}}));
    }
  }

  TEST_CASE("limits of time steps") {
    const Plan plan = plan_of(name, {{"time_step_limit", "[0.25, 0.5]"}});
    CHECK(ssd(plan).shape.dt_min == 0.25F);
    CHECK(ssd(plan).shape.dt_max == 0.5F);
    CHECK(contains(error_of("time_step_limit", "[0.5, 0.25]"), "time_step_limit"));
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of("use_bias", "true"), "use_bias"));
    CHECK(contains(error_of("rms_norm", "false"), "rms_norm"));
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "\"gelu\""));
    CHECK(contains(error_of("expand", "3"), "expand: x hidden_size is 12288, but num_heads x "));
    CHECK(contains(error_of("n_groups", "7"), "groups"));
  }
}

}  // namespace mamba2_test
