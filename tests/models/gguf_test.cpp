#include <fmt/format.h>

#include <map>

#include "models/gguf.h"
#include "tests/models/golden_drafts.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace models_gguf_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;
using namespace hyb::testing;

namespace {

/// How a fixture's folder is read, and how far from its logits those of its GGUF file may be.
struct Expected {
  /// Keys of config.json with other values, as an object: what the file does not say.
  std::string config = "{}";
  /// Of the largest logit, in f32; 0: the same bytes, in f32 and in bf16.
  double bound = 0;
};

/// The other fixtures' logits are the folder's, byte for byte.
const std::map<std::string, Expected> expected = {
    // Divisors are f32 in the file: some frequencies are another rounding of the same numbers.
    {"llama-3", {.bound = 1e-5}},
    // Its factors are products with the weights, in f32; whether the norm is before the gate, the
    // file does not say.
    {"falcon-h1-groups", {.config = R"({"mamba_norm_before_gate":false})", .bound = 1e-5}},
    // Rows of q and k come in the order of a rope that these have not: sums of q.k in another one.
    {"granite-groups", {.bound = 1e-5}},
    {"granite-moe-rope-untied",
     {.config = R"({"position_embedding_type":"nope"})", .bound = 1e-5}},  // rope is not written
    {"nemotron-grouped", {.bound = 1e-5}},
    {"nemotron-latent", {.bound = 1e-5}},
    {"nemotron-moe", {.bound = 1e-5}},
    // Heads of values come in another order, so do the columns of the output's sums.
    {"qwen3_5-dense", {.bound = 1e-5}},
    {"qwen3_5-moe", {.bound = 1e-5}},
    // The file says neither what scores are divided by nor which layers have windows.
    {"gemma2-odd", {.config = R"({"query_pre_attn_scalar":10,"layer_types":["sliding_attention",
                    "full_attention","sliding_attention","full_attention"]})"}},
    {"gemma3-odd", {.config = R"({"query_pre_attn_scalar":22,"layer_types":["sliding_attention",
                    "sliding_attention","sliding_attention"]})"}},
    // It does not say where gates are cut off.
    {"gpt-oss", {.config = R"({"swiglu_limit":7.0})"}},
    // It does not say whether the weights of the chosen experts are normalised.
    {"mellum-yarn", {.config = R"({"norm_topk_prob":true})"}},
};

Config config_of(const std::filesystem::path& folder, const std::string& changes) {
  Json json = parse_json(read_whole_file(folder / "config.json", 1U << 20), "config.json",
                         {.python_numbers = true});
  json.update(parse_json(changes, "changes"));
  return Config::from_text(to_text(json), (folder / "config.json").string());
}

Loaded load_file(const std::filesystem::path& path, DType activation, kernels::Isa isa) {
  return Loaded(
      [&](kernels::Queue& queue) {
        GgufFiles files(path);
        const Config config = gguf_config(files);
        TensorFiles tensors = TensorFiles::of_gguf(std::move(files));
        return load_model(queue, config, tensors, {.activation = activation});
      },
      kernels::Device::cpu, {.threads = 2, .isa = isa});
}

Loaded load_folder(const std::filesystem::path& folder, const std::string& changes,
                   DType activation, kernels::Isa isa) {
  return Loaded(
      [&](kernels::Queue& queue) {
        TensorFiles tensors(folder);
        return load_model(queue, config_of(folder, changes), tensors, {.activation = activation});
      },
      kernels::Device::cpu, {.threads = 2, .isa = isa});
}

std::vector<std::string> fixtures_in_gguf() {
  std::vector<std::string> names = fixtures();
  std::erase_if(names, [](const std::string& name) {
    return !std::filesystem::exists(golden_folder / name / "model.gguf");
  });
  return names;
}

}  // namespace

TEST_SUITE("models/gguf") {
  TEST_CASE("what llama.cpp's converter made of a folder has the folder's logits") {
    REQUIRE(fixtures_in_gguf().size() >= 10);
    for (const std::string& name : fixtures_in_gguf()) {
      const Golden golden(name);
      const auto found = expected.find(name);
      const Expected wanted = found == expected.end() ? Expected{} : found->second;
      for (const DType activation : {DType::f32, DType::bf16}) {
        if (activation == DType::bf16 && wanted.bound > 0) continue;
        CAPTURE(name);
        CAPTURE(static_cast<int>(activation));
        Loaded folder = load_folder(golden.folder, wanted.config, activation, kernels::best_isa());
        Loaded file = load_file(golden.folder / "model.gguf", activation, kernels::best_isa());
        Distance distance{static_cast<std::size_t>(folder.model.plan.vocab)};
        bool are_equal = true;
        for (const auto& prompt : golden.prompts) {
          const std::vector<float> of_file = file.run(prompt, 0), of_folder = folder.run(prompt, 0);
          distance.add(of_file, of_folder);
          are_equal &= of_file == of_folder;
        }
        MESSAGE(name, ": ", are_equal ? "equal" : fmt::format("{:.1e}", distance.relative_max()));
        if (wanted.bound == 0) CHECK(are_equal);
        CHECK(distance.relative_max() <= wanted.bound);
      }
    }
  }

  TEST_CASE("the draft layer in a file guesses as the float64 reference does") {
    for (const std::string name :
         {"qwen3_5-dense", "qwen3-next-odd", "nemotron-moe", "nemotron-latent"}) {
      CAPTURE(name);
      const Golden golden(name);
      DraftWorld world(
          [&](kernels::Queue& queue) {
            GgufFiles files(golden.folder / "model.gguf");
            const Config config = gguf_config(files);
            TensorFiles tensors = TensorFiles::of_gguf(std::move(files));
            return load_model(queue, config, tensors,
                              {.activation = DType::f32, .with_drafts = true});
          },
          kernels::Device::cpu, {.threads = 2, .isa = kernels::best_isa()}, true);
      CHECK(largest_difference(world, golden, golden.folder) <= 2e-4);
    }
  }

  TEST_CASE("without drafts the blocks of a draft layer are known and not used") {
    GgufFiles files(golden_folder / "qwen3_5-dense/model.gguf");
    const Config config = gguf_config(files);
    const TensorFiles tensors = TensorFiles::of_gguf(std::move(files));
    const Family& family = family_of(config);
    CHECK(has_draft_layer(family, tensors));
    CHECK(WeightIndex(plan_of(config, false), family, tensors).extra().empty());
    CHECK(is_known_unused(plan_of(config, false), family, "blk.4.attn_norm.weight"));
    CHECK_FALSE(is_known_unused(plan_of(config, false), family, "blk.3.attn_norm.weight"));
  }

  TEST_CASE("what is refused is named") {
    const TemporaryFolder folder;
    const auto changed = [&](const char* fixture, std::string_view key, char value) {
      std::string bytes =
          read_whole_file(golden_folder / fixture / "model.gguf", std::size_t{1} << 24);
      bytes.at(bytes.find(key) + key.size() + 4) = value;  // after its type
      return folder.write("changed.gguf", bytes);
    };
    const auto fault = [](const std::filesystem::path& path) {
      return model_error([&] { load_file(path, DType::f32, kernels::best_isa()); });
    };
    const auto has = [](const std::string& text, std::string_view part) {
      return text.find(part) != std::string::npos;
    };
    CHECK(has(fault(changed("granite-groups", "granitehybrid.rope.scaling.finetuned", 1)),
              "are a Bamba's"));
    CHECK(has(fault(changed("qwen3_5-dense", "qwen35.block_count", 4)),
              "there are tensors of block 4"));
    CHECK(has(fault(changed("qwen3_5-dense", "qwen35.ssm.time_step_rank", 5)),
              "5 heads do not divide 64 values"));
    CHECK(has(fault(changed("lfm2-moe", "lfm2moe.expert_gating_func", 1)), "only 2 (sigmoid)"));
    // A decay that grows.
    const std::filesystem::path whole = golden_folder / "granite-groups/model.gguf";
    std::string bytes = read_whole_file(whole, std::size_t{1} << 24);
    const auto header = parse_gguf_header(bytes, bytes.size(), whole);
    for (const GgufTensor& tensor : header->tensors) {
      if (tensor.name == "blk.1.ssm_a") bytes.at(header->data_offset + tensor.begin + 3) ^= '\x80';
    }
    CHECK(has(fault(folder.write("grows.gguf", bytes)),
              "\"blk.1.ssm_a\" is to have numbers below 0 alone"));
  }
}

}  // namespace models_gguf_test
