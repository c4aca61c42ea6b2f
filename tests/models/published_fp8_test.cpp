#include "models/published_fp8.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "models/weight_index.h"
#include "tests/support/plans.h"

namespace published_fp8_test {

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

TEST_SUITE("models/published_fp8") {
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

}  // namespace published_fp8_test
