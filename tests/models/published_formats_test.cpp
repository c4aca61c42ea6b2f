#include "models/published_formats.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "models/weight_index.h"
#include "tests/support/plans.h"

namespace published_formats_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* presets[] = {"granite-4.0-h-tiny", "nemotron-nano-12b-v2",
                                   "qwen3-next-80b-a3b"};

/// Of a preset with this quantization_config; "": with none.
std::int64_t count_of_preset(const char* name, const std::string& quantization) {
  const Config config = preset(name, {{"quantization_config", quantization}});
  const Family& family = family_of(config);
  return fp8_parameters(family.plan(config), family, config);
}

}  // namespace

TEST_SUITE("models/published_formats") {
  TEST_CASE("config.json alone says of every published way of writing FP8 what the files have") {
    for (const char* name :
         {"bamba-fp8", "lfm2-fp8", "nemotron-fp8", "qwen3-next-fp8", "qwen3_5-moe-fp8"}) {
      CAPTURE(name);
      const std::filesystem::path folder = std::filesystem::path(HYB_TESTS_DIR) / "golden" / name;
      const Config config = Config::from_folder(folder);
      const Family& family = family_of(config);
      const Plan plan = family.plan(config);
      const std::int64_t stored = fp8_parameters(plan, family, TensorFiles(folder));
      CHECK(stored > 0);
      CHECK(fp8_parameters(plan, family, config) == stored);
    }
  }

  TEST_CASE("most of a published model is FP8, and what lists name is not") {
    for (const char* name : presets) {
      CAPTURE(name);
      CHECK(count_of_preset(name, "") == 0);
      const std::int64_t all = parameters(required_weights(plan_of(name), family_of(preset(name))));
      const std::int64_t most = count_of_preset(name, R"({"quant_method":"fp8"})");
      CHECK(most > 0.85 * static_cast<double>(all));
      const auto without = [&](const std::string& entry) {
        return count_of_preset(
            name, R"({"quant_method":"fp8","modules_to_not_convert":[")" + entry + "\"]}");
      };
      CHECK(without("no_such_module") == most);
      CHECK(without("*") == 0);
      CHECK(without("re:.*") == 0);
      CHECK(without("re:layers") == most);  // expressions match from the start of a name
      CHECK(without("*.layers.0.*") < most);
      CHECK(without("*.layers.0.*") == without(R"(re:.*\\.layers\\.0\\.)"));
    }
  }

  TEST_CASE("every published format has a size, also those that are not read") {
    struct Case {
      const char* quantization;
      const char* format;
      double bits;  // per weight that FP8 would have as one byte
    };
    for (const Case& one : {
             Case{R"({"quant_method":"fp8"})", "FP8", 8},
             Case{R"({"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"]})",
                  "NVFP4", 4.5},
             Case{R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized",
                      "ignore":["lm_head"]})",
                  "NVFP4", 4.5},
             Case{R"({"quant_method":"gptq","bits":4,"group_size":128})", "4-bit GPTQ",
                  4 + 20.0 / 128},
             Case{R"({"quant_method":"gptq","bits":8,"group_size":-1})", "8-bit GPTQ", 8},
             Case{R"({"quant_method":"awq","w_bit":4,"q_group_size":64,"zero_point":false})",
                  "4-bit AWQ", 4 + 16.0 / 64},
             Case{R"({"quant_method":"bitsandbytes","load_in_8bit":true})", "8-bit bitsandbytes",
                  8},
             Case{R"({"quant_method":"bitsandbytes","load_in_4bit":true})", "4-bit bitsandbytes",
                  4.5},
             Case{R"({"quant_method":"bitsandbytes","load_in_4bit":true,
                      "bnb_4bit_use_double_quant":true})",
                  "4-bit bitsandbytes", 4 + 8.125 / 64},
             Case{R"({"quant_method":"compressed-tensors","format":"pack-quantized",
                      "ignore":["lm_head"],
                      "config_groups":{"group_0":{"weights":{"num_bits":4,"group_size":32}}}})",
                  "4-bit compressed-tensors", 4.5},
         }) {
      CAPTURE(one.quantization);
      for (const char* name : presets) {
        CAPTURE(name);
        const Config config = preset(name, {{"quantization_config", one.quantization}});
        const Family& family = family_of(config);
        const Plan plan = family.plan(config.without_quantization());
        const auto all = static_cast<double>(parameters(required_weights(plan, family)));
        const auto coded = static_cast<double>(count_of_preset(name, R"({"quant_method":"fp8"})"));
        const std::optional<PublishedSize> size = published_size(plan, family, config);
        REQUIRE(size);
        CHECK(size->format == one.format);
        CHECK(static_cast<double>(size->bytes) ==
              doctest::Approx(2 * (all - coded) + coded * one.bits / 8).epsilon(1e-9));
      }
    }
  }

  TEST_CASE("MXFP4 is of experts alone; mixed formats are named; what is unknown has no size") {
    const auto size_with = [](const std::string& quantization) {
      const Config config = preset("granite-4.0-h-tiny", {{"quantization_config", quantization}});
      const Family& family = family_of(config);
      return published_size(family.plan(config.without_quantization()), family, config);
    };
    const auto fp8 = size_with(R"({"quant_method":"fp8"})");
    const auto experts = size_with(R"({"quant_method":"mxfp4"})");
    REQUIRE(fp8);
    REQUIRE(experts);
    CHECK(experts->format == "MXFP4");
    CHECK(experts->bytes < fp8->bytes);  // experts are most of this model
    const auto mixed = size_with(
        R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{
            "model.layers.5.self_attn.q_proj":{"quant_algo":"FP8"},
            "model.layers.15.self_attn.q_proj":{"quant_algo":"NVFP4"}}})");
    REQUIRE(mixed);
    CHECK(mixed->format == "FP8 and NVFP4");
    CHECK(!size_with(R"({"quant_method":"aqlm"})"));
    CHECK(!size_with(R"({"quant_method":"modelopt","quant_algo":"XYZ"})"));
    CHECK(!size_with(""));
  }

  TEST_CASE("of mixed precisions the named layers count, of keys and values alone nothing") {
    const auto mixed = [](const std::string& layers) {
      return count_of_preset("granite-4.0-h-tiny",
                             R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION",)"
                             R"("quantized_layers":)" +
                                 layers + "}");
    };
    CHECK(mixed("{}") == 0);
    const std::int64_t one = mixed(R"({"model.layers.5.self_attn.q_proj":{"quant_algo":"FP8"}})");
    CHECK(one > 0);
    CHECK(mixed(R"({"model.layers.5.self_attn.q_proj":{"quant_algo":"FP8"},
                    "model.layers.15.self_attn.q_proj":{"quant_algo":"NONE"}})") == one);
    CHECK(mixed(R"({"model.layers.5.self_attn":{"quant_algo":"FP8"}})") > one);
    CHECK(count_of_preset("granite-4.0-h-tiny",
                          R"({"quant_method":"modelopt","quant_algo":null})") == 0);
  }
}

}  // namespace published_formats_test
