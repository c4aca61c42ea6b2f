#include <algorithm>
#include <map>
#include <random>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/io/file.h"
#include "models/families.h"
#include "models/geometry.h"
#include "models/weight_index.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace families_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

const char* const presets[] = {"bamba-9b",
                               "command-r7b",
                               "falcon-h1-0.5b",
                               "falcon-mamba-7b",
                               "jamba-1.5-mini",
                               "gemma-3-1b",
                               "gemma-3-27b",
                               "gemma-3n-e2b",
                               "gemma-3n-e4b",
                               "gemma-4-12b",
                               "gemma-4-26b-a4b",
                               "gemma-4-e2b",
                               "gemma-4-e4b",
                               "gpt-oss-120b",
                               "gpt-oss-20b",
                               "granite-3.1-2b",
                               "granite-4.0-h-350m",
                               "granite-4.0-h-micro",
                               "granite-4.0-h-tiny",
                               "lfm2-350m",
                               "lfm2-8b-a1b",
                               "lfm3-1.7b",
                               "llama-3.2-1b",
                               "llama-4-scout",
                               "nemotron-h-8b",
                               "nemotron-3-nano-30b-a3b",
                               "mamba-codestral-7b",
                               "ministral-3-8b",
                               "nemotron-nano-12b-v2",
                               "qwen3-0.6b",
                               "qwen3-30b-a3b",
                               "qwen3.5-0.8b",
                               "qwen3.5-35b-a3b",
                               "qwen3-next-80b-a3b",
                               "smollm3-3b",
                               "kimi-linear-48b-a3b",
                               "ling-2.6-flash",
                               "ling-3.0-flash",
                               "ling-3.0-tiny",
                               "minimax-text-01",
                               "olmo-hybrid-7b",
                               "zamba2-1.2b",
                               "zamba2-2.7b",
                               "zamba2-7b"};

}  // namespace

TEST_SUITE("models/families") {
  TEST_CASE("families are found by model_type and sorted by name") {
    const auto first = [](const Family* f) { return f->model_types.front(); };
    CHECK(std::is_sorted(families().begin(), families().end(),
                         [&](auto a, auto b) { return first(a) < first(b); }));
    CHECK(&family_of(preset("granite-4.0-h-tiny")) == &granite_hybrid::family);
    CHECK(&family_of(preset("nemotron-nano-12b-v2")) == &nemotron_h::family);
    CHECK(&family_of(preset("qwen3-next-80b-a3b")) == &qwen3_next::qwen3_next);
  }

  TEST_CASE("an unknown model_type is answered with the nearest and all known ones") {
    const std::string error = model_error([] {
      family_of(Config::from_text(R"({"model_type":"granitemoehybird"})", "config.json"));
    });
    CHECK(contains(error, "config.json: model_type: \"granitemoehybird\" is not known"));
    CHECK(contains(error, "the nearest family is granitemoehybrid;"));
    const auto error_of = [](const std::string& model_type) {
      const std::string config = R"({"model_type":")" + model_type + "\"}";
      return model_error([&] { family_of(Config::from_text(config, "config.json")); });
    };
    CHECK(contains(error_of("lfm2_mo"), "the nearest family is lfm2;"));
    CHECK(contains(error_of("nemotron"), "the nearest family is nemotron_h;"));
    for (const char* other : {"gpt2", "mixtral", "rwkv7", "t5", "x", ""}) {
      CAPTURE(other);
      CHECK(contains(error_of(other), "is not known; known are bailing_hybrid, "));
    }
    CHECK(contains(error,
                   "bamba, cohere2, falcon_h1, gemma2, gemma3, gemma3_text, gemma3n, "
                   "gemma3n_text, gemma4, gemma4_text, gemma4_unified, "));
    CHECK(contains(model_error([] { family_of(Config::from_text("{}", "config.json")); }),
                   "model_type: is missing"));
  }

  TEST_CASE("a config that the newest transformers has saved is the same model") {
    const auto read = [](const std::filesystem::path& path) {
      return parse_json(read_whole_file(path, 1U << 20), path.string(), {.python_numbers = true});
    };
    const std::filesystem::path tests = HYB_TESTS_DIR;
    std::map<std::string, Json> published;
    for (const Json& row : read(tests / "models/published_sizes.json")) {
      published[row["name"].get<std::string>()] = row["config"];
    }
    const Json saved = read(tests / "models/saved_configs.json");
    for (const auto& [name, patch] : saved["patches"].items()) {
      CAPTURE(name);
      const Json given = published.contains(name) ? published[name]
                                                  : read(tests / "golden" / name / "config.json");
      const auto plan = [](const Json& config) {
        return models::plan_of(Config::from_text(to_text(config), "config.json"), true);
      };
      Plan before = plan(given);
      const Plan after = plan(given.patch(patch));
      // Some published rows are without it; transformers adds its default.
      if (before.positions_max == 0) before.positions_max = after.positions_max;
      CHECK(before == after);
    }
  }

  TEST_CASE("every family refuses quantised weights, but for those of formats that are read") {
    const auto error_of = [](const char* name, const char* quantization) {
      return model_error([&] { plan_of(name, {{"quantization_config", quantization}}); });
    };
    for (const char* name : presets) {
      CHECK(contains(error_of(name, R"({"quant_method":"hqq"})"), "quantised by \"hqq\""));
      CHECK(error_of(name, R"({"quant_method":"fp8"})") == "");
    }
  }

  TEST_CASE("every family refuses layers with values of their own") {
    for (const char* name : presets) {
      const auto error_of = [&](const char* layers) {
        return model_error([&] { plan_of(name, {{"per_layer_config", layers}}); });
      };
      CHECK(error_of("{}") == "");
      CHECK(contains(error_of(R"({"3":{"head_dim":32}})"), "per_layer_config: layer "));
      CHECK(contains(error_of("[1]"), "per_layer_config: must be an object"));
    }
  }

  TEST_CASE("any one absurd value is an error that names a key, or a plan; never a crash") {
    const std::vector<std::string> absurd = {
        "",   "-1",   "0",    "1",   "3", "16777216",     "1e300", "\"x\"", "[]",
        "{}", "true", "null", "0.5", "7", "\"Infinity\"", "[1,2]", "\"M\"", "[\"mamba\"]"};
    int plans = 0;
    int errors = 0;
    for (const char* name : presets) {
      const Config c = preset(name);
      for (const char* key : {"hidden_size",
                              "num_hidden_layers",
                              "layer_types",
                              "num_attention_heads",
                              "num_key_value_heads",
                              "head_dim",
                              "mamba_n_heads",
                              "mamba_d_head",
                              "mamba_n_groups",
                              "mamba_d_state",
                              "mamba_d_conv",
                              "mamba_expand",
                              "num_local_experts",
                              "num_experts_per_tok",
                              "intermediate_size",
                              "shared_intermediate_size",
                              "rms_norm_eps",
                              "vocab_size",
                              "logits_scaling",
                              "position_embedding_type",
                              "rope_theta",
                              "hybrid_override_pattern",
                              "mamba_num_heads",
                              "mamba_head_dim",
                              "ssm_state_size",
                              "n_groups",
                              "conv_kernel",
                              "time_step_limit",
                              "n_routed_experts",
                              "n_group",
                              "topk_group",
                              "moe_latent_size",
                              "full_attention_interval",
                              "partial_rotary_factor",
                              "linear_num_key_heads",
                              "linear_num_value_heads",
                              "linear_key_head_dim",
                              "linear_conv_kernel_dim",
                              "num_experts",
                              "mlp_only_layers",
                              "decoder_sparse_step",
                              "attn_layer_indices",
                              "block_ff_dim",
                              "block_ffn_dim_multiplier",
                              "block_multiple_of",
                              "conv_L_cache",
                              "full_attn_idxs",
                              "moe_intermediate_size",
                              "num_dense_layers",
                              "mamba_d_ssm",
                              "mamba_rms_norm",
                              "key_multiplier",
                              "ssm_multipliers",
                              "mlp_multipliers"}) {
        for (const std::string& value : absurd) {
          const std::string error = model_error([&] { plan_of(name, {{key, value}}); });
          error.empty() ? ++plans : ++errors;
          if (!error.empty() && !contains(error, "/config.json: ")) FAIL(error);
        }
      }
    }
    CHECK(plans > 1000);  // keys that the family does not read
    CHECK(errors > 1000);
  }
}

using namespace hyb;
using namespace hyb::models;

namespace {

/// What scripts/golden/make_published_sizes.py counted, for published checkpoints of all families.
Json published_sizes() {
  const std::string path = HYB_TESTS_DIR "/models/published_sizes.json";
  return parse_json(read_whole_file(path, 1U << 20), path, {.python_numbers = true});
}

void check_sizes(const Json& row) {
  CAPTURE(row["name"].get<std::string>());
  const Config config = Config::from_text(to_text(row["config"]), row["name"].get<std::string>());
  const Family& family = family_of(config);
  Plan plan = family.plan(config);
  CHECK(plan.layers.size() == row["layers"].get<std::size_t>());

  const auto weights = required_weights(plan, family);
  CHECK(parameters(weights) == row["parameters"].get<std::int64_t>());
  CHECK(weights.size() == row["tensors"].get<std::size_t>());

  const DType states[] = {DType::f32, DType::bf16};
  for (const DType state : states) {
    plan.state_dtype = state;
    const Geometry geometry = geometry_of(plan);
    const char* key = state == DType::f32 ? "state_bytes_f32" : "state_bytes_bf16";
    CHECK(geometry.state_bytes_per_sequence == row[key].get<std::size_t>());
    CHECK(geometry.kv_bytes_per_token == row["kv_bytes_per_token"].get<std::size_t>());
    CHECK(geometry.pages.size() == row["attention_layers"].get<std::size_t>());
    CHECK(geometry.pieces.size() == row["recurrent_layers"].get<std::size_t>());
  }
}

}  // namespace

TEST_SUITE("models/published_sizes") {
  TEST_CASE("layers, parameters, tensors, KV and state of published checkpoints") {
    const Json rows = published_sizes();
    CHECK(rows.size() == 56);
    for (const Json& row : rows) check_sizes(row);
  }
}

}  // namespace families_test
