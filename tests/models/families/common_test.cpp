#include <functional>

#include "models/families/common.h"
#include "tests/models/golden.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace common_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;
using namespace hyb::testing;

namespace {

std::string error_of(const std::string& quantization) {
  const std::string text = R"({"model_type":"llama","quantization_config":)" + quantization + "}";
  return model_error([&] { refuse_quantized(Config::from_text(text, "config.json")); });
}

std::string mixed(const std::string& layers) {
  return error_of(
      R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":)" + layers +
      "}");
}

Json read_json(const std::filesystem::path& path) {
  return parse_json(read_whole_file(path, 1U << 20), path.string(), {.python_numbers = true});
}

/// The fixture nemotron-fp8 with other settings: its weights, and the two files that say how they
/// are quantised, changed.
struct Requantised {
  explicit Requantised(const std::function<void(Json& config, Json& modelopt)>& change) {
    const Golden golden("nemotron-fp8");
    Json config = read_json(golden.folder / "config.json");
    Json modelopt = read_json(golden.folder / "hf_quant_config.json");
    change(config, modelopt);
    folder.write("config.json", to_text(config));
    if (!modelopt.is_null()) folder.write("hf_quant_config.json", to_text(modelopt));
    std::filesystem::copy(golden.folder / "model.safetensors", folder.path());
  }

  std::vector<float> logits(DType activation) const { return logits_of(folder.path(), activation); }

  static std::vector<float> logits_of(const std::filesystem::path& folder, DType activation) {
    Loaded loaded(folder, activation, kernels::best_isa());
    return loaded.run(Golden("nemotron-fp8").prompts.back(), 0);
  }

  TemporaryFolder folder;
};

/// A map as ModelOpt writes it for the layers that are FP8 in the fixture.
Json layers_of(const std::filesystem::path& folder) {
  Json layers = Json::object();
  const SafetensorsFile file(folder / "model.safetensors");
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.dtype != DType::f8_e4m3) continue;
    layers[tensor.name.substr(0, tensor.name.rfind('.'))] = {{"quant_algo", "FP8"}};
  }
  return layers;
}

}  // namespace

TEST_SUITE("models/families/quantization") {
  TEST_CASE("what is not read is refused by its key and its name") {
    struct Case {
      const char *quantization, *key, *refused;
    };
    for (const auto& [quantization, key, refused] :
         {Case{R"({"quant_method":"gptq","bits":8})", "bits", "8-bit GPTQ"},
          Case{R"({"quant_method":"gptq","checkpoint_format":"marlin"})", "checkpoint_format",
               "gptq marlin"},
          Case{R"({"quant_method":"awq","w_bit":3})", "bits", "3-bit AWQ"},
          Case{R"({"quant_method":"awq","version":"gemv"})", "version", "awq gemv"},
          Case{R"({"quant_method":"auto-round","packing_format":"auto_round:exllamav2"})",
               "packing_format", "auto-round auto_round:exllamav2"},
          Case{R"({"quant_method":"exl3"})", "quant_method", "exl3"},
          Case{R"({"quant_method":"hqq"})", "quant_method", "hqq"},
          Case{R"({"bits":4,"group_size":64})", "quant_method", "MLX"},
          Case{R"({"quant_method":"bitsandbytes"})", "quant_method", "bitsandbytes"},
          Case{R"({"quant_method":"mxfp4"})", "quant_method", "mxfp4"},
          Case{"{}", "quant_method", "unknown"},
          Case{R"({"quant_method":"modelopt"})", "quant_algo", "modelopt unknown"},
          Case{R"({"quant_method":"modelopt","quant_algo":"NVFP4_AWQ"})", "quant_algo",
               "modelopt NVFP4_AWQ"},
          Case{R"({"quant_method":"compressed-tensors","format":"marlin-24"})", "format",
               "compressed-tensors marlin-24"},
          Case{R"({"quant_method":"compressed-tensors","format":"pack-quantized",
                   "config_groups":{"g":{"weights":{"num_bits":3}}}})",
               "config_groups.\"g\".weights.num_bits", "3-bit compressed-tensors"},
          Case{R"({"quant_method":"fp8","weight_block_size":[64,128]})", "weight_block_size",
               "fp8 in blocks of 64 x 128"}}) {
      CHECK(error_of(quantization) ==
            "config.json: quantization_config." + std::string(key) + ": weights quantised by \"" +
                refused +
                "\" are not supported; use a folder of this model in bf16, FP8, NVFP4, "
                "compressed-tensors, AWQ or GPTQ, or a GGUF file");
    }
  }

  TEST_CASE("MLX as it was written first is refused, beside a text part, too") {
    for (const char* text :
         {R"({"model_type":"llama","quantization":{"group_size":64,"bits":4}})",
          R"({"model_type":"llama","quantization":{"group_size":64,"bits":4},"text_config":{}})"}) {
      CHECK(model_error([&] { refuse_quantized(Config::from_text(text, "config.json")); }) ==
            "config.json: quantization.quant_method: weights quantised by \"MLX\" are not "
            "supported; use a folder of this model in bf16, FP8, NVFP4, compressed-tensors, AWQ or "
            "GPTQ, or a GGUF file");
    }
  }

  TEST_CASE("4 and 8 bits in groups are read as their methods write them") {
    for (const char* quantization :
         {R"({"quant_method":"gptq","bits":4,"desc_act":false,"checkpoint_format":"gptq_v2"})",
          R"({"quant_method":"gptq","bits":4,"desc_act":true})",
          R"({"quant_method":"awq","bits":4,"version":"gemm"})",
          R"({"quant_method":"auto-round","bits":4,"packing_format":"auto_round:auto_gptq"})",
          R"({"quant_method":"modelopt","quant_algo":"NVFP4"})",
          R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"})",
          R"({"quant_method":"compressed-tensors","format":"pack-quantized",
              "config_groups":{"g":{"weights":{"num_bits":4,"group_size":128,
                                               "actorder":"group"}}}})",
          R"({"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{
              "a":{"format":"int-quantized","weights":{"num_bits":8}},
              "b":{"format":"float-quantized"}}})"}) {
      CHECK(error_of(quantization) == "");
    }
  }

  TEST_CASE("F8_E4M3 is read as all four methods write it") {
    for (const char* quantization :
         {R"({"quant_method":"fp8","weight_block_size":[128,128]})", R"({"quant_method":"fp8"})",
          R"({"quant_method":"modelopt","quant_algo":"FP8"})",
          R"({"quant_method":"modelopt","quant_algo":"FP8_PER_CHANNEL_PER_TOKEN"})",
          R"({"quant_method":"compressed-tensors","format":"float-quantized"})", "null"}) {
      CHECK(error_of(quantization) == "");
    }
    // Keys and values alone: the weights are as they were.
    CHECK(error_of(R"({"quant_method":"modelopt","quant_algo":null})") == "");
  }

  TEST_CASE("of mixed precisions those are read that are FP8, NVFP4 or none") {
    CHECK(mixed("{}") == "");
    CHECK(mixed(R"({"a.q_proj":{"quant_algo":"FP8"},"a.k_proj":{"quant_algo":"NONE"},
                    "a.v_proj":{"quant_algo":null},"a.o_proj":null})") == "");
    CHECK(
        mixed(R"({"a.q_proj":{"quant_algo":"FP8"},
                    "a.experts.0.up_proj":{"quant_algo":"W4A8_AWQ","group_size":16}})") ==
        "config.json: quantization_config.quantized_layers: \"a.experts.0.up_proj\" is quantised "
        "by \"W4A8_AWQ\", which is not supported; use a folder of this model in bf16, FP8, NVFP4, "
        "compressed-tensors, AWQ or GPTQ, or a GGUF file");
    CHECK(mixed(R"({"lm_head":{"quant_algo":"W4A16_NVFP4"}})") == "");
    CHECK(contains(error_of(R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION"})"),
                   "quantization_config.quantized_layers: is missing"));
    CHECK(contains(mixed("[]"), "quantized_layers: must be an object"));
    CHECK(contains(mixed(R"({"a":8})"), "quantized_layers.\"a\": must be an object, is 8"));
    CHECK(contains(mixed(R"({"\u001b[2J":{"quant_algo":1}})"),
                   R"(quantized_layers."\x1b[2J".quant_algo: must be text)"));
  }

  TEST_CASE("the same weights give the same logits, whichever file says that they are FP8") {
    const std::filesystem::path published = golden_folder / "nemotron-fp8";
    const Json layers = layers_of(published);
    REQUIRE(layers.size() > 5);
    const Requantised alone([](Json& config, Json&) { config.erase("quantization_config"); });
    const Requantised mixed([&](Json& config, Json& modelopt) {
      config["quantization_config"]["quant_algo"] = "MIXED_PRECISION";
      config["quantization_config"]["quantized_layers"] = layers;
      modelopt = nullptr;
    });
    const Requantised mixed_alone([&](Json& config, Json& modelopt) {
      config.erase("quantization_config");
      modelopt["quantization"]["quant_algo"] = "MIXED_PRECISION";
      modelopt["quantization"]["quantized_layers"] = layers;
    });
    for (const DType activation : {DType::f32, DType::bf16}) {
      const std::vector<float> logits = Requantised::logits_of(published, activation);
      CHECK(alone.logits(activation) == logits);
      CHECK(mixed.logits(activation) == logits);
      CHECK(mixed_alone.logits(activation) == logits);
    }
  }

  TEST_CASE("hf_quant_config.json refuses what it names, and config.json goes before it") {
    const auto error_of = [](const Requantised& model) {
      return model_error([&] { model.logits(DType::f32); });
    };
    const Requantised other([](Json& config, Json& modelopt) {
      config.erase("quantization_config");
      modelopt["quantization"]["quant_algo"] = "MXFP8";
    });
    CHECK(contains(error_of(other),
                   "hf_quant_config.json: quantization.quant_algo: weights "
                   "quantised by \"modelopt MXFP8\" are not supported"));
    const Requantised stranger([](Json& config, Json& modelopt) {
      config.erase("quantization_config");
      modelopt["producer"]["name"] = "another";
    });
    CHECK(contains(error_of(stranger), "quantised by \"another\""));
    const Requantised empty([](Json& config, Json& modelopt) {
      config.erase("quantization_config");
      modelopt.erase("quantization");
    });
    CHECK(contains(error_of(empty), "hf_quant_config.json: quantization: is missing"));
    const Requantised both(
        [](Json&, Json& modelopt) { modelopt["quantization"]["quant_algo"] = "MXFP8"; });
    CHECK(error_of(both) == "");
  }
}

}  // namespace common_test
