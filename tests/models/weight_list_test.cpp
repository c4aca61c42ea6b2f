#include "models/weight_list.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/support/error_text.h"
#include "tests/support/plans.h"

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

std::vector<RequiredWeight> weights_of(const std::string& name,
                                       const std::vector<Edit>& edits = {}) {
  const Config config = preset(name, edits);
  const Family& family = family_of(config);
  return required_weights(family.plan(config), family);
}

double billions(const std::string& name, const std::vector<Edit>& edits = {}) {
  return static_cast<double>(parameters(weights_of(name, edits))) / 1e9;
}

std::vector<std::int64_t> shape_of(const std::vector<RequiredWeight>& weights,
                                   const std::string& name) {
  for (const RequiredWeight& weight : weights) {
    if (weight.names.front() == name) return weight.shape;
  }
  FAIL("no tensor " << name);
  return {};
}

}  // namespace

TEST_SUITE("models/weight_list") {
  TEST_CASE("the published numbers of parameters") {
    CHECK(std::abs(billions("granite-4.0-h-350m") - 0.340) < 0.0005);
    CHECK(std::abs(billions("granite-4.0-h-micro", granite_1b()) - 1.46) < 0.005);
    CHECK(std::abs(billions("granite-4.0-h-micro") - 3.19) < 0.005);
    CHECK(std::abs(billions("granite-4.0-h-tiny") - 6.94) < 0.005);
    CHECK(std::abs(billions("granite-4.0-h-tiny", granite_small()) - 32.2) < 0.05);
    CHECK(std::abs(billions("nemotron-3-nano-30b-a3b") - 31.58) < 0.005);
    CHECK(std::abs(billions("nemotron-nano-12b-v2") - 12.31) < 0.005);
    CHECK(std::abs(billions("nemotron-nano-12b-v2", nemotron_nano_9b()) - 8.89) < 0.005);
    CHECK(std::abs(billions("nemotron-3-nano-30b-a3b", nemotron_super()) - 120.67) < 0.005);
    CHECK(std::abs(billions("qwen3-next-80b-a3b") - 79.67) < 0.005);
  }

  TEST_CASE("shapes as published") {
    const auto granite = weights_of("granite-4.0-h-tiny");
    CHECK(shape_of(granite, "model.layers.0.mamba.in_proj.weight") ==
          std::vector<std::int64_t>{2 * 3072 + 256 + 48, 1536});
    CHECK(shape_of(granite, "model.layers.0.block_sparse_moe.input_linear.weight") ==
          std::vector<std::int64_t>{64, 1024, 1536});
    CHECK(shape_of(granite, "model.layers.39.shared_mlp.input_linear.weight") ==
          std::vector<std::int64_t>{2048, 1536});
    const auto qwen = weights_of("qwen3-next-80b-a3b");
    CHECK(shape_of(qwen, "model.layers.0.linear_attn.in_proj_qkvz.weight") ==
          std::vector<std::int64_t>{12288, 2048});
    CHECK(shape_of(qwen, "model.layers.0.linear_attn.in_proj_ba.weight") ==
          std::vector<std::int64_t>{64, 2048});
    CHECK(shape_of(qwen, "model.layers.3.self_attn.q_proj.weight") ==
          std::vector<std::int64_t>{8192, 2048});
    CHECK(shape_of(qwen, "model.layers.3.mlp.experts.511.down_proj.weight") ==
          std::vector<std::int64_t>{2048, 512});
    const auto nemotron = weights_of("nemotron-3-nano-30b-a3b", nemotron_super());
    CHECK(shape_of(nemotron, "backbone.layers.1.mixer.experts.0.up_proj.weight") ==
          std::vector<std::int64_t>{2688, 1024});
    CHECK(shape_of(nemotron, "backbone.layers.1.mixer.fc2_latent_proj.weight") ==
          std::vector<std::int64_t>{4096, 1024});
  }

  TEST_CASE("every tensor once, the head only when it is not tied") {
    for (const char* name : {"granite-4.0-h-350m", "granite-4.0-h-tiny", "nemotron-3-nano-30b-a3b",
                             "nemotron-nano-12b-v2", "qwen3-next-80b-a3b"}) {
      const auto weights = weights_of(name);
      std::set<std::string> names;
      std::set<WeightKey> keys;
      for (const RequiredWeight& weight : weights) {
        keys.insert(weight.key);
        for (const std::string& spelling : weight.names) {
          names.insert(spelling);
          CHECK(spelling.find("{}") == std::string::npos);
        }
      }
      CHECK(keys.size() == weights.size());
      CHECK(names.size() >= weights.size());
      CHECK(keys.contains({.role = "head"}) != preset(name).b("tie_word_embeddings", false));
    }
    CHECK(weights_of("nemotron-nano-12b-v2")[0].names ==
          std::vector<std::string>{"backbone.embeddings.weight", "model.embeddings.weight",
                                   "language_model.backbone.embeddings.weight",
                                   "backbone.embed_tokens.weight", "model.embed_tokens.weight",
                                   "language_model.backbone.embed_tokens.weight"});
  }

  TEST_CASE("a hostile plan does not become a list without end") {
    CHECK(contains(model_error([] {
                     weights_of("nemotron-3-nano-30b-a3b",
                                {{"num_hidden_layers", "4096"},
                                 {"hybrid_override_pattern", "\"" + std::string(4096, 'E') + "\""},
                                 {"n_routed_experts", "4096"}});
                   }),
                   "more than 1000000 tensors"));
    CHECK(contains(model_error([] {
                     weights_of("granite-4.0-h-tiny", {{"num_local_experts", "4096"},
                                                       {"intermediate_size", "16777216"},
                                                       {"vocab_size", "16777216"},
                                                       {"hidden_size", "1572864"},
                                                       {"num_attention_heads", "12288"},
                                                       {"mamba_n_heads", "49152"}});
                   }),
                   "2^60 parameters"));
  }
}
