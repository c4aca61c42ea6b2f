#include <doctest/doctest.h>

#include "models/geometry.h"
#include "models/weight_index.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace kimi_linear_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* published = "kimi-linear-48b-a3b";

std::string error_of(const std::string& key, const std::string& value) {
  return model_error([&] { plan_of(published, {{key, value}}); });
}

const Part& part(const Plan& plan, std::size_t layer, std::size_t block) {
  return plan.layers.at(layer).blocks.at(block).parts.at(0);
}

}  // namespace

TEST_SUITE("models/families/kimi_linear") {
  TEST_CASE("layers are counted from 1: Kimi delta attention, and attention by latents") {
    const Plan plan = plan_of(published);
    REQUIRE(plan.layers.size() == 27);
    for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
      const bool is_full = layer % 4 == 3 || layer == 26;
      CHECK(std::holds_alternative<Mla>(part(plan, layer, 0)) == is_full);
      CHECK(std::holds_alternative<Mlp>(part(plan, layer, 1)) == (layer == 0));
    }
    CHECK(std::get<DeltaNet>(part(plan, 0, 0)).text().text ==
          "Kimi delta attention, 32 value heads, 32 key heads, 128 x 128, convolution of 4");
    const auto& mla = std::get<Mla>(part(plan, 3, 0));
    CHECK(mla.text().text == "32 heads x 128 + 64, values of 128, latents of 512, no positions");
    CHECK(mla.scale == doctest::Approx(1 / std::sqrt(192.0)));
    const auto& moe = std::get<Moe>(part(plan, 1, 1));
    CHECK(moe.active == 8);
    CHECK(moe.shared_hidden == 1024);
    CHECK(moe.scale == 2.446F);
    CHECK(plan.positions_max == 1048576);
    CHECK(!plan.has_rope());
  }

  TEST_CASE("a page has a row of latents for each token, and no values") {
    const Geometry geometry = geometry_of(plan_of(published));
    REQUIRE(geometry.pages.size() == 7);
    CHECK(geometry.pages[0].elements_per_token == 576);
    CHECK(geometry.kv_bytes_per_token == 7 * 576 * 2);
    CHECK(geometry_of(plan_of(published), {.kv = DType::f8_e4m3}).kv_bytes_per_token == 7 * 576);
  }

  TEST_CASE("decays have the shape that they are published in") {
    int seen = 0;
    for (const RequiredWeight& weight : required_weights(plan_of(published), kimi_linear::family)) {
      if (weight.names.front() != "model.layers.0.self_attn.A_log") continue;
      ++seen;
      CHECK(weight.shape == std::vector<std::int64_t>{1, 1, 32, 1});
    }
    CHECK(seen == 1);
  }

  TEST_CASE("what is read by its columns is stored plainly, or refused") {
    const std::vector<std::byte> bytes(64, std::byte{56});
    const auto rows_of = [&](DType dtype) {
      StoredMatrix stored = {.role = "mla.kv_b", .expert = -1, .rows = 4, .source = {1, 4, 3}};
      stored.source.append(dtype, 4, {bytes.data(), 12 * size_of(dtype)});
      MatrixRows rows(2);
      rows.append_transposed(stored, 1, 2);
      return rows.rows();
    };
    CHECK(rows_of(DType::bf16) == 3);
    CHECK(contains(model_error([&] { rows_of(DType::f8_e4m3); }),
                   "mla.kv_b is read by its columns, and must be F32, BF16 or F16"));
  }

  TEST_CASE("what is not supported is named") {
    CHECK(contains(error_of("mla_use_nope", "false"), "mla_use_nope: false is not supported"));
    CHECK(contains(error_of("moe_layer_freq", "2"), "moe_layer_freq: is not supported, only 1"));
    CHECK(contains(error_of("moe_router_activation_func", "\"softmax\""),
                   "moe_router_activation_func: \"softmax\" is not supported"));
    CHECK(contains(error_of("num_key_value_heads", "8"), "num_key_value_heads: is not 32"));
    CHECK(contains(error_of("kv_lora_rank", "2048"), "at most 1024 is supported"));
    CHECK(contains(model_error([] {
                     plan_of(published, {{"num_attention_heads", "65536"},
                                         {"num_key_value_heads", "65536"},
                                         {"qk_nope_head_dim", "1"},
                                         {"v_head_dim", "1"}});
                   }),
                   "at most 1024 is supported"));
    CHECK(contains(error_of("hidden_act", "\"gelu\""), "hidden_act"));
    CHECK(contains(error_of("linear_attn_config",
                            R"({"kda_layers":[1,2],"full_attn_layers":[2],"num_heads":32,)"
                            R"("head_dim":128,"short_conv_kernel_size":4})"),
                   "name layer 2 2 times, not once"));
  }
}

}  // namespace kimi_linear_test
