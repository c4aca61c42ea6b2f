#include <algorithm>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "models/published_formats.h"
#include "models/weight_index.h"
#include "tests/models/golden.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/plans.h"

namespace weight_index_test {

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

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

constexpr const char* config_text = R"({"model_type":"granitemoehybrid","hidden_size":8,
  "num_hidden_layers":2,"layer_types":["mamba","attention"],"num_attention_heads":2,
  "num_key_value_heads":1,"mamba_n_heads":2,"mamba_d_head":4,"mamba_n_groups":1,"mamba_d_state":3,
  "mamba_d_conv":4,"mamba_expand":1,"num_local_experts":0,"shared_intermediate_size":5,
  "rms_norm_eps":1e-5,"vocab_size":11,"tie_word_embeddings":true})";

struct Stored {
  std::string dtype = "BF16";
  std::vector<std::int64_t> shape;
};

/// A model folder with one tensor for each that the config asks for, and what a test does to them.
struct Folder {
  TemporaryFolder folder;
  Plan plan;
  std::map<std::string, Stored> tensors;

  Folder() {
    const Config config = Config::from_text(config_text, "config.json");
    plan = family_of(config).plan(config);
    for (const RequiredWeight& weight : required_weights(plan, granite_hybrid::family)) {
      tensors[weight.names.front()] = {.shape = weight.shape};
    }
  }

  void write() const {
    std::string header = "{";
    std::size_t end = 0;
    for (const auto& [name, stored] : tensors) {
      std::size_t bytes = stored.dtype == "F32"                               ? 4
                          : stored.dtype == "U8" || stored.dtype == "F8_E4M3" ? 1
                                                                              : 2;
      std::string shape;
      for (const std::int64_t dimension : stored.shape) {
        bytes *= static_cast<std::size_t>(dimension);
        shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
      }
      header += (end == 0 ? "\"" : ",\"") + name + R"(":{"dtype":")" + stored.dtype +
                R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(end) + "," +
                std::to_string(end + bytes) + "]}";
      end += bytes;
    }
    folder.write("model.safetensors", safetensors_bytes(header + "}", std::string(end, 'x')));
  }

  std::string error() const {
    write();
    return model_error([&] {
      const TensorFiles files(folder.path());
      WeightIndex(plan, granite_hybrid::family, files);
    });
  }
};

}  // namespace

TEST_SUITE("models/weight_index") {
  TEST_CASE("a role has one row, whose kind goes with its shape") {
    std::set<std::string_view> names;
    for (const RoleRow& row : role_table) {
      CAPTURE(std::string(row.name));
      CHECK(names.insert(row.name).second);
      CHECK(!row.use.empty());
      const auto commas = std::count(row.shape.begin(), row.shape.end(), ',');
      if (row.kind <= RoleKind::plain) CHECK(commas >= 1);
      if (row.kind == RoleKind::taps) CHECK(commas == 2);
    }
    CHECK(Role().is_none());
    CHECK(!Role("ssd.d").is_matrix());
    CHECK(Role("mla.k_b").rank() == 3);
  }

  TEST_CASE("weights are found by role and layer") {
    Folder model;
    model.tensors["model.layers.0.mamba.A_log"].dtype = "F32";
    model.tensors["lm_head.weight"] = {.shape = {11, 8}};
    model.tensors["mtp.layers.0.norm.weight"] = {.shape = {8}};
    model.write();
    TensorFiles files(model.folder.path());
    const WeightIndex index(model.plan, granite_hybrid::family, files);
    files.map();
    CHECK(index.name({"ssd.a_log", 0}) == "model.layers.0.mamba.A_log");
    CHECK(index.view({"ssd.a_log", 0}).dtype == DType::f32);
    CHECK(index.view({"attention.q", 1}).bytes.size() == 8 * 8 * 2);
    CHECK(index.has({"embed"}));
    CHECK(!index.has({"head"}));
    CHECK(!index.has({"attention.q", 0}));
    CHECK_THROWS_AS(index.name({"attention.q", 0}), Error);
    // The copy of a tied head is known; draft layers are of other families.
    CHECK(index.extra() == std::vector<std::string>{"mtp.layers.0.norm.weight"});
    CHECK(is_known_unused(model.plan, qwen3_next::qwen3_next, "mtp.layers.0.norm.weight"));
    CHECK(!is_known_unused(model.plan, qwen3_next::qwen3_next, "model.mtp"));
    index.drop({"embed"});
    CHECK(index.view({"embed"}).bytes[0] == std::byte{'x'});
  }

  TEST_CASE("a tensor of the family for which config.json has no place is an error") {
    Folder model;
    model.tensors["model.layers.7.mamba.A_log"] = {.shape = {1}};
    CHECK(contains(model.error(),
                   "\"model.layers.7.mamba.A_log\" is BF16 [1]: a ssd.a_log for which"));
    CHECK(role_of(nemotron_h::family,
                  "language_model.backbone.layers.12.mixer.experts.7.up_proj.weight")
              .name() == "moe.expert_up");
    CHECK(role_of(nemotron_h::family, "backbone.layers.x.mixer.D").is_none());
    CHECK(role_of(nemotron_h::family, "backbone.layers.1.mixer.Dx").is_none());
  }

  TEST_CASE("missing tensors are counted and named") {
    Folder model;
    model.tensors.erase("model.norm.weight");
    CHECK(contains(model.error(),
                   "1 tensors that config.json asks for are missing: "
                   "model.norm.weight [8]"));
    std::erase_if(model.tensors,
                  [](const auto& t) { return t.first.starts_with("model.layers.1."); });
    const std::string error = model.error();
    CHECK(contains(error, "model.layers.1.input_layernorm.weight [8], "));
    CHECK(error.ends_with(", ..."));
  }

  TEST_CASE("a wrong shape or dtype is named with what was expected") {
    Folder model;
    model.tensors["model.layers.0.mamba.D"].shape = {3};
    CHECK(contains(model.error(),
                   "tensor \"model.layers.0.mamba.D\" is BF16 [3]: config.json asks for [2]"));
    model.tensors["model.layers.0.mamba.D"] = {.dtype = "U8", .shape = {2}};
    CHECK(contains(model.error(), "is U8 [2]: BF16, F16 and F32 are read, of matrices"));
    model.tensors["model.layers.0.mamba.D"] = {.dtype = "F8_E8M0", .shape = {2}};
    CHECK(contains(model.error(), "is F8_E8M0 [2]: its dtype is not read"));
    model.tensors["model.layers.0.mamba.D"] = {.dtype = "F16", .shape = {2}};
    CHECK(model.error() == "");
  }

  TEST_CASE("dtypes that hyb lacks and names that are there twice matter where they are used") {
    Folder model;
    model.tensors["extra.one"] = {.dtype = "F4", .shape = {2}};
    model.tensors["extra.two"] = {.dtype = "C64", .shape = {2}};
    CHECK(model.error() == "");
    const std::string name = "model.layers.0.mamba.D";
    const auto twice = [&](const std::string& which) {
      const std::string bytes = content(model.folder.path() / "model.safetensors");
      const std::string header = R"({")" + which + R"(":{"dtype":"U8","shape":[0],)" +
                                 R"("data_offsets":[0,0]},)" + bytes.substr(9);
      const std::size_t end = header.find("}}") + 2;
      model.folder.write("model.safetensors",
                         safetensors_bytes(header.substr(0, end), header.substr(end)));
      return model_error([&] {
        const TensorFiles files(model.folder.path());
        WeightIndex(model.plan, granite_hybrid::family, files);
      });
    };
    model.write();
    CHECK(twice("extra.one") == "");
    model.write();
    CHECK(contains(twice(name), "its name is there twice"));
  }

  TEST_CASE("F8_E4M3 brings scales of a tensor, of rows or of blocks") {
    struct Case {
      const char* suffix;
      std::vector<std::int64_t> shape;
      std::int64_t row_block, column_block, count;
    };
    for (const Case& c : {Case{"_scale", {}, 8, 8, 1}, Case{"_scale", {1}, 8, 8, 1},
                          Case{"_scale", {8}, 1, 8, 8}, Case{"_scale", {8, 1}, 1, 8, 8},
                          Case{"_scale_inv", {1, 1}, 128, 128, 1}, Case{"_scale_inv", {}, 8, 8, 1},
                          Case{"_scale_inv", {1}, 8, 8, 1}, Case{"_scale_inv", {8, 1}, 1, 8, 8}}) {
      Folder model;
      const std::string name = "model.layers.1.self_attn.q_proj.weight";
      model.tensors[name].dtype = "F8_E4M3";
      model.tensors[name + c.suffix] = {.dtype = "F32", .shape = c.shape};
      model.tensors["model.layers.1.self_attn.q_proj.input_scale"] = {.dtype = "F32", .shape = {}};
      model.tensors["model.layers.1.self_attn.k_proj.k_scale"] = {.dtype = "F32", .shape = {}};
      model.tensors["model.layers.1.self_attn.q_proj.activation_scale"] = {.dtype = "BF16",
                                                                           .shape = {}};
      model.write();
      const TensorFiles files(model.folder.path());
      const WeightIndex index(model.plan, granite_hybrid::family, files);
      const StoredScales* const scales = index.scales({"attention.q", 1});
      REQUIRE(scales != nullptr);
      CHECK(scales->name == name + c.suffix);
      CHECK(scales->row_block == c.row_block);
      CHECK(scales->column_block == c.column_block);
      CHECK(scales->per_expert == c.count);
      CHECK(index.scales({"attention.k", 1}) == nullptr);
      CHECK(index.extra().empty());
    }
  }

  TEST_CASE("parameters published as F8_E4M3 are counted where the plan uses them") {
    Folder model;
    const std::string name = "model.layers.1.self_attn.q_proj.weight";
    model.tensors[name].dtype = "F8_E4M3";
    model.tensors[name + "_scale"] = {.dtype = "F32", .shape = {}};
    model.tensors["of.another.model"] = {.dtype = "F8_E4M3", .shape = {500, 8}};
    model.write();
    const TensorFiles files(model.folder.path());
    CHECK(fp8_parameters(model.plan, granite_hybrid::family, files) == 8 * 8);
  }

  TEST_CASE("MXFP4 is blocks of 16 bytes with a scale each") {
    const auto tensor = [](const char* name, DType dtype, std::vector<std::int64_t> shape) {
      return TensorInfo{
          .name = name, .dtype = dtype, .shape = std::move(shape), .begin = 0, .end = 0};
    };
    const TensorInfo blocks = tensor("w_blocks", DType::u8, {3, 130, 9, 16});
    const auto layout = scales_layout(tensor("w_scales", DType::u8, {3, 130, 9}), blocks);
    REQUIRE(layout.has_value());
    CHECK(layout->row_block == 1);
    CHECK(layout->column_block == 32);
    CHECK(layout->per_expert == 130 * 9);
    CHECK(!scales_layout(tensor("w_scales", DType::u8, {3, 130, 8}), blocks));
    CHECK(!scales_layout(tensor("w_scales", DType::bf16, {3, 130, 9}), blocks));
    const hyb::models::testing::Golden golden("gpt-oss");
    const Config config = Config::from_folder(golden.folder);
    const Plan plan = gpt_oss::family.plan(config);
    const TensorFiles files(golden.folder);
    const WeightIndex index(plan, gpt_oss::family, files);
    CHECK(index.extra().empty());
    REQUIRE(index.scales({"moe.down", 2}) != nullptr);
    CHECK(index.scales({"moe.down", 2})->name == "model.layers.2.mlp.experts.down_proj_scales");
    const std::int64_t numbers = std::int64_t{3} * 6 * 3 * 96 * 64;
    CHECK(mxfp4_parameters(plan, gpt_oss::family, files) == numbers);
    CHECK(mxfp4_parameters(plan, gpt_oss::family, config) == numbers);
    CHECK(fp8_parameters(plan, gpt_oss::family, files) == 0);
    const Config wider = edited(golden.folder, {{"intermediate_size", "160"}});
    CHECK(contains(
        model_error([&] { WeightIndex(gpt_oss::family.plan(wider), gpt_oss::family, files); }),
        "config.json asks for [6, 320, 2, 16]"));
  }

  TEST_CASE("scales of experts in one tensor have the expert as first dimension") {
    const auto layout = [](std::vector<std::int64_t> scales, const char* suffix) {
      const auto tensor = [](const std::string& name, DType dtype,
                             std::vector<std::int64_t> shape) {
        return TensorInfo{
            .name = name, .dtype = dtype, .shape = std::move(shape), .begin = 0, .end = 0};
      };
      return scales_layout(tensor(std::string("w") + suffix, DType::bf16, std::move(scales)),
                           tensor("w", DType::f8_e4m3, {3, 130, 300}));
    };
    CHECK(layout({3}, "_scale")->per_expert == 1);
    CHECK(layout({3, 1, 1}, "_scale")->column_block == 300);
    CHECK(layout({3, 130}, "_scale")->row_block == 1);
    CHECK(layout({3, 130, 1}, "_scale")->per_expert == 130);
    CHECK(layout({3, 2, 3}, "_scale_inv")->per_expert == 6);
    CHECK(layout({3, 2, 3}, "_scale")->row_block == 128);
    for (const std::vector<std::int64_t>& wrong :
         {std::vector<std::int64_t>{}, {2}, {3, 129}, {3, 2, 2}, {2, 3}, {3, 130, 2}}) {
      CHECK(!layout(wrong, "_scale"));
    }
    CHECK(layout({3}, "_scale_inv")->per_expert == 1);
  }

  TEST_CASE("F8_E4M3 without scales, with others', or where no matrix is, is refused by name") {
    Folder model;
    const std::string name = "model.layers.1.self_attn.q_proj.weight";
    model.tensors[name].dtype = "F8_E4M3";
    CHECK(contains(model.error(), "has neither _scale nor _scale_inv"));
    model.tensors[name + "_scale"] = {.dtype = "F32", .shape = {7}};
    CHECK(contains(model.error(),
                   "q_proj.weight_scale\" is F32 [7]: no BF16, F16 or F32 scales of [8, 8]"));
    model.tensors[name + "_scale"] = {.dtype = "U8", .shape = {8}};
    CHECK(contains(model.error(), "is U8 [8]: no BF16"));
    model.tensors[name + "_scale"] = {.dtype = "BF16", .shape = {8}};
    CHECK(model.error() == "");
    model.tensors["model.layers.0.mamba.conv1d.weight"].dtype = "F8_E4M3";
    CHECK(contains(model.error(), "is F8_E4M3 [14, 1, 4]: BF16, F16 and F32 are read"));
  }
}

}  // namespace weight_index_test
