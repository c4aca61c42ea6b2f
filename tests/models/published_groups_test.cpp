#include "models/published_groups.h"

#include <cstring>
#include <functional>
#include <map>

#include "models/gguf.h"
#include "models/published_formats.h"
#include "models/weight_index.h"
#include "models/weights.h"
#include "tests/models/golden.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace published_groups_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;
using namespace hyb::testing;

namespace {

struct Tensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

/// A fixture's tensors, to be spelled in other ways.
class Respelled {
 public:
  explicit Respelled(const std::string& name) : golden_(name) {
    SafetensorsFile file(golden_.folder / "model.safetensors");
    file.map();
    for (const TensorInfo& info : file.tensors()) {
      const auto bytes = file.view(info.name).value().bytes;
      tensors[info.name] = {std::string(info.dtype_name()),
                            info.shape,
                            {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    }
    config = parse_json(content(golden_.folder / "config.json"), name, {.python_numbers = true});
  }

  std::map<std::string, Tensor> tensors;
  Json config;

  void write() const {
    Json header = Json::object();
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      const std::size_t begin = data.size();
      data += tensor.bytes;
      header[name] = {
          {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
    folder_.write("model.safetensors", safetensors_bytes(to_text(header), data));
    folder_.write("config.json", to_text(config));
  }

  std::vector<float> logits(DType activation) const {
    write();
    return logits_in(folder_.path(), activation);
  }
  std::vector<float> logits_as_published(DType activation) const {
    return logits_in(golden_.folder, activation);
  }
  std::string error() const {
    return model_error([&] { logits(DType::bf16); });
  }
  const std::filesystem::path& folder() const { return folder_.path(); }

  /// make(module, codes, zeros) for every matrix of 4 bits, in place of its tensors but the scales.
  struct Matrix {
    std::int64_t rows, columns, groups;
    std::vector<int> codes, zeros;  ///< [rows,columns], [rows,groups]
    Tensor scales;
  };
  void respell(const std::function<void(const std::string& module, const Matrix&)>& make) {
    std::vector<std::string> modules;
    for (const auto& [name, tensor] : tensors) {
      const std::string end = "weight_packed";
      if (name.ends_with(end)) modules.push_back(name.substr(0, name.size() - end.size()));
    }
    REQUIRE(modules.size() > 10);
    for (const std::string& module : modules) {
      const std::string weight = module + "weight";
      const Tensor packed = tensors.at(weight + "_packed");
      Matrix matrix = {packed.shape[0],
                       packed.shape[1] * 8,
                       tensors.at(weight + "_scale").shape[1],
                       {},
                       {},
                       tensors.at(weight + "_scale")};
      const auto code_at = [](const std::string& bytes, std::int64_t word, std::int64_t i) {
        const char byte = bytes[static_cast<std::size_t>(word * 4 + i / 2)];
        return static_cast<unsigned char>(byte) >> (i % 2 * 4) & 15;
      };
      for (std::int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
        matrix.codes.push_back(code_at(packed.bytes, i / 8, i % 8));
      }
      const bool has_zeros = tensors.contains(weight + "_zero_point");
      for (std::int64_t i = 0; i < matrix.rows * matrix.groups; ++i) {
        const std::int64_t n = i / matrix.groups, g = i % matrix.groups;
        matrix.zeros.push_back(has_zeros ? code_at(tensors.at(weight + "_zero_point").bytes,
                                                   n / 8 * matrix.groups + g, n % 8)
                                         : 8);
      }
      for (const char* end : {"_packed", "_scale", "_shape", "_zero_point"}) {
        tensors.erase(weight + end);
      }
      make(module, matrix);
    }
  }

 private:
  static std::vector<float> logits_in(const std::filesystem::path& folder, DType activation) {
    Loaded loaded(folder, activation, kernels::best_isa());
    const Json golden = parse_json(content(golden_folder / "qwen3_5-int4" / "golden.json"), "");
    std::vector<TokenId> prompt;
    for (std::int32_t i = 3; i < 20; ++i) prompt.push_back(TokenId{i});
    return loaded.run(prompt, 0);
  }

  Golden golden_;
  TemporaryFolder folder_;
};

/// [rows, columns] packed along the columns, of which nibble i holds the one order[i].
Tensor packed(std::int64_t rows, std::int64_t columns,
              const std::function<int(std::int64_t row, std::int64_t column)>& code,
              const std::array<int, 8>& order = {0, 1, 2, 3, 4, 5, 6, 7}) {
  Tensor tensor = {"I32", {rows, columns / 8}, ""};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < columns; i += 2) {
      const auto at = [&](std::int64_t place) {
        return code(row, place / 8 * 8 + order[static_cast<std::size_t>(place % 8)]);
      };
      tensor.bytes += static_cast<char>(at(i) | at(i + 1) << 4);
    }
  }
  return tensor;
}

/// [rows, columns] the other way round; packed ones along the rows of what `tensor` has.
Tensor turned(const Tensor& tensor, std::size_t size) {
  const auto rows = static_cast<std::size_t>(tensor.shape[0]);
  const auto columns = static_cast<std::size_t>(tensor.shape[1]);
  Tensor out = {tensor.dtype, {tensor.shape[1], tensor.shape[0]}, ""};
  for (std::size_t i = 0; i < rows * columns; ++i) {
    out.bytes += tensor.bytes.substr((i % rows * columns + i / rows) * size, size);
  }
  return out;
}

constexpr std::array<int, 8> awq_order = {0, 2, 4, 6, 1, 3, 5, 7};

void to_awq(Respelled& model) {
  model.respell([&](const std::string& module, const Respelled::Matrix& m) {
    model.tensors[module + "qweight"] = packed(
        m.columns, m.rows,
        [&](std::int64_t k, std::int64_t n) {
          return m.codes[static_cast<std::size_t>(n * m.columns + k)];
        },
        awq_order);
    model.tensors[module + "qzeros"] = packed(
        m.groups, m.rows,
        [&](std::int64_t g, std::int64_t n) {
          return m.zeros[static_cast<std::size_t>(n * m.groups + g)];
        },
        awq_order);
    model.tensors[module + "scales"] = turned(m.scales, 2);
  });
  model.config["quantization_config"] = {{"quant_method", "awq"},
                                         {"bits", 4},
                                         {"group_size", 32},
                                         {"zero_point", true},
                                         {"version", "gemm"}};
}

void to_gptq(Respelled& model, int zeros_below) {
  model.respell([&](const std::string& module, const Respelled::Matrix& m) {
    model.tensors[module + "qweight"] =
        turned(packed(m.rows, m.columns,
                      [&](std::int64_t n, std::int64_t k) {
                        return m.codes[static_cast<std::size_t>(n * m.columns + k)];
                      }),
               4);
    model.tensors[module + "qzeros"] =
        packed(m.groups, m.rows, [&](std::int64_t g, std::int64_t n) {
          const int zero = m.zeros[static_cast<std::size_t>(n * m.groups + g)] - zeros_below;
          REQUIRE(zero >= 0);
          return zero;
        });
    model.tensors[module + "scales"] = turned(m.scales, 2);
    Tensor order = {"I32", {m.columns}, ""};
    for (std::int64_t k = 0; k < m.columns; ++k) {
      order.bytes += static_cast<char>(k / (m.columns / m.groups));
      order.bytes += std::string(3, '\0');
    }
    model.tensors[module + "g_idx"] = order;
  });
  const char* const format = zeros_below > 0 ? "gptq" : "gptq_v2";
  model.config["quantization_config"] = {
      {"quant_method", "gptq"}, {"bits", 4}, {"desc_act", false}, {"checkpoint_format", format}};
}

void to_int8(Respelled& model) {
  model.respell([&](const std::string& module, const Respelled::Matrix& m) {
    Tensor codes = {"I8", {m.rows, m.columns}, ""};
    for (std::size_t i = 0; i < m.codes.size(); ++i) {
      const std::size_t group = i / static_cast<std::size_t>(m.columns / m.groups);
      codes.bytes += static_cast<char>(m.codes[i] - m.zeros[group]);
    }
    model.tensors[module + "weight"] = codes;
    model.tensors[module + "weight_scale"] = m.scales;
  });
  model.config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                         {"format", "int-quantized"}};
}

}  // namespace

TEST_SUITE("models/published_groups") {
  TEST_CASE("the same numbers give the same logits, however they are spelled") {
    const Respelled published("qwen3_5-int4");
    for (const DType activation : {DType::f32, DType::bf16}) {
      const std::vector<float> logits = published.logits_as_published(activation);
      Respelled awq("qwen3_5-int4"), old("qwen3_5-int4"), gptq("qwen3_5-int4");
      to_awq(awq);
      CHECK(awq.logits(activation) == logits);
      to_gptq(old, 1);
      CHECK(old.logits(activation) == logits);
      to_gptq(gptq, 0);
      CHECK(gptq.logits(activation) == logits);
      if (activation != DType::f32) continue;  // with zero points sums are rounded otherwise
      Respelled int8("qwen3_5-int4");
      to_int8(int8);
      CHECK(int8.logits(activation) == logits);
    }
  }

  TEST_CASE("groups in any order of columns stay packed, q, k and v in parts where they differ") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    const Golden golden("qwen3-moe-gptq");
    TensorFiles files(golden.folder);
    const Model model = load_model(queue, Config::from_folder(golden.folder), files, {});
    const auto count = [&](kernels::WeightCode code) {
      return model.weights.matrices[static_cast<std::size_t>(code)];
    };
    // In the second layer gate and up of one expert differ, which unpacks them.
    CHECK(count(kernels::WeightCode::groups) == 5);  // o and down of both, gate and up of the first
    CHECK(count(kernels::WeightCode::blocks) == 2);  // q, k and v
  }

  TEST_CASE("NVFP4 of compressed-tensors divides by its scale of all") {
    Respelled model("nemotron-nvfp4");
    const std::vector<float> logits = model.logits_as_published(DType::f32);
    const std::string end = "_scale_2";
    const std::map<std::string, Tensor> all = model.tensors;
    for (const auto& [name, tensor] : all) {
      if (!name.ends_with(end)) continue;
      const std::string weight = name.substr(0, name.size() - end.size());
      float unit = 0;
      std::memcpy(&unit, tensor.bytes.data(), sizeof(unit));
      unit = 1 / unit;
      Tensor divisor = {"F32", {1}, std::string(sizeof(unit), '\0')};
      std::memcpy(divisor.bytes.data(), &unit, sizeof(unit));
      model.tensors[weight + "_packed"] = all.at(weight);
      model.tensors[weight + "_global_scale"] = divisor;
      model.tensors[weight.substr(0, weight.size() - 6) + "input_global_scale"] = divisor;
      model.tensors.erase(name);
      model.tensors.erase(weight);
    }
    model.config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                           {"format", "nvfp4-pack-quantized"}};
    Distance distance{131};
    distance.add(model.logits(DType::f32), logits);
    CHECK(distance.relative_max() <= 1e-5);
    // What quantised activations would need is known, and nothing else is left over.
    const Config config = Config::from_folder(model.folder());
    const Family& family = family_of(config);
    const TensorFiles files(model.folder());
    std::size_t unused = 0;
    for (const CheckedTensor& other : check_weights(family.plan(config), family, files).others) {
      CHECK(other.verdict == TensorVerdict::unused);
      ++unused;
    }
    CHECK(unused > 10);
  }

  TEST_CASE("experts in one tensor, each with its unit, are those of one tensor each") {
    Respelled model("nemotron-nvfp4");
    const std::vector<float> logits = model.logits_as_published(DType::bf16);
    const std::map<std::string, Tensor> all = model.tensors;
    std::size_t stacked = 0;
    for (const auto& [name, codes] : all) {
      const std::size_t at = name.find(".experts.0.");
      if (at == std::string::npos || !name.ends_with(".weight")) continue;
      const std::string start = name.substr(0, at + 9), end = name.substr(at + 11);
      const std::string stack = start + end.substr(0, end.size() - 7);
      for (const auto& [own, joined] :
           {std::pair("", ""), {"_scale", "_weight_scale"}, {"_scale_2", "_weight_scale_2"}}) {
        Tensor tensor = {all.at(name + own).dtype, all.at(name + own).shape, ""};
        std::int64_t experts = 0;
        for (;; ++experts) {
          const auto found = all.find(start + std::to_string(experts) + "." + end + own);
          if (found == all.end()) break;
          tensor.bytes += found->second.bytes;
          model.tensors.erase(found->first);
        }
        CHECK(experts > 2);
        tensor.shape.insert(tensor.shape.begin(), experts);
        model.tensors[stack + joined] = tensor;
      }
      ++stacked;
    }
    CHECK(stacked >= 4);
    CHECK(model.logits(DType::bf16) == logits);
    model.tensors.at("backbone.layers.1.mixer.experts.up_proj_weight_scale_2") = {
        "F32", {3}, std::string(12, '\1')};
    CHECK(contains(model.error(), "config.json asks for F32 [1]"));
  }

  TEST_CASE("matrices stay in groups in memory, and files and config.json say how much they take") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    for (const char* name : {"qwen3_5-int4", "nemotron-nvfp4"}) {
      CAPTURE(name);
      const Golden golden(name);
      const Config config = Config::from_folder(golden.folder);
      TensorFiles files(golden.folder);
      const Family& family = family_of(config);
      const Model model =
          load_model(queue, config, files, {.load = {.quantize = kernels::Quantize::q8}});
      CHECK(model.weights.matrices[static_cast<std::size_t>(kernels::WeightCode::groups)] >= 5);
      LoadOptions load = model.geometry.load;
      load.fp8_parameters = fp8_parameters(model.plan, family, files);
      CHECK(mxfp4_parameters(model.plan, family, files) == 0);
      load.blocks = packed_blocks(model.plan, family, files);
      CHECK(load.blocks.types == "groups as published");
      const PackedBlocks on_card = packed_blocks(model.plan, family, files, kernels::Device::cuda);
      CHECK(on_card.parameters == load.blocks.parameters);
      CHECK(on_card.bytes > load.blocks.bytes);  // whole chunks of columns, which are few here
      const auto bytes = static_cast<double>(model.weights.packed_bytes);
      CHECK(static_cast<double>(packed_bytes(model.plan, kernels::Device::cpu, load)) ==
            doctest::Approx(bytes).epsilon(0.13));
      const PackedBlocks stated = published_groups(model.plan, family, config);
      CHECK(static_cast<double>(stated.parameters) ==
            doctest::Approx(static_cast<double>(load.blocks.parameters)).epsilon(0.1));
    }
  }

  TEST_CASE("stacks and GGUF files of NVFP4 stay packed") {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 2, .isa = {}});
    const auto groups_of = [](const Model& model) {
      return model.weights.matrices[static_cast<std::size_t>(kernels::WeightCode::groups)];
    };
    const Golden stacked("llama4-nvfp4"), one_by_one("qwen3-moe-nvfp4");
    TensorFiles files(stacked.folder);
    const Config config = Config::from_folder(stacked.folder);
    CHECK(groups_of(load_model(queue, config, files, {})) == 4);  // of two layers
    CHECK(packed_blocks(family_of(config).plan(config), family_of(config), files).types ==
          "groups as published");
    GgufFiles gguf(one_by_one.folder / "model.gguf");
    const Config of_file = gguf_config(gguf);
    TensorFiles tensors = TensorFiles::of_gguf(std::move(gguf));
    CHECK(groups_of(load_model(queue, of_file, tensors, {})) == 8);  // q k v, o, two of experts
    TensorFiles reordered(golden_folder / "qwen3-moe-gptq");
    const Config gptq = Config::from_folder(golden_folder / "qwen3-moe-gptq");
    const auto packed_on = [&](kernels::Device device) {
      return packed_blocks(family_of(gptq).plan(gptq), family_of(gptq), reordered, device);
    };
    const PackedBlocks here = packed_on(kernels::Device::cpu);
    const PackedBlocks on_card = packed_on(kernels::Device::cuda);
    CHECK(here.ordered_columns == 64);
    CHECK(on_card.ordered_columns == 64);
    constexpr std::int64_t attention = 64 * (64 + 2 * 32) + 64 * 64;
    CHECK(on_card.parameters == 2 * attention);  // of two layers; experts are unpacked there
    CHECK(here.parameters == on_card.parameters + 2 * 4 * 3 * 64 * 64);
    const PackedBlocks stated =
        published_groups(family_of(gptq).plan(gptq), family_of(gptq), gptq, kernels::Device::cuda);
    CHECK(stated.parameters == on_card.parameters);
    CHECK(stated.ordered_columns == 64);
  }

  TEST_CASE("damaged scales, shapes and orders are errors that name the tensor") {
    const std::string module = "model.language_model.layers.1.self_attn.o_proj.";
    const auto error_with = [&](const std::function<void(Respelled&)>& change) {
      Respelled model("qwen3_5-int4");
      REQUIRE(model.tensors.contains(module + "weight_packed"));
      change(model);
      return model.error();
    };
    CHECK(contains(error_with([&](Respelled& model) {
                     model.tensors[module + "weight_scale"].bytes.replace(6, 2, "\xc0\x7f");
                   }),
                   "o_proj.weight_scale\": scale 3 is not finite"));
    CHECK(contains(
        error_with([&](Respelled& model) { model.tensors.erase(module + "weight_scale"); }),
        "it has no weight_scale"));
    CHECK(contains(
        error_with([&](Respelled& model) {
          model.tensors[module + "weight_scale"] = {"BF16", {64, 3}, std::string(384, '\1')};
        }),
        "3 groups do not divide 64 columns"));
    CHECK(contains(error_with([&](Respelled& model) {
                     model.tensors[module + "weight_zero_point"].shape = {2, 8};
                   }),
                   "config.json asks for I32 [8, 2]"));
    CHECK(contains(error_with([&](Respelled& model) {
                     model.tensors[module + "weight_packed"].shape = {32, 16};
                   }),
                   "config.json asks for I32 [64, 8]"));
    CHECK(contains(error_with([&](Respelled& model) {
                     to_gptq(model, 1);
                     model.tensors[module + "g_idx"].bytes[0] = 1;
                   }),
                   "o_proj.g_idx\": group 0 has 31 columns, not 32; hyb reads groups of one size"));
    CHECK(contains(error_with([&](Respelled& model) {
                     to_gptq(model, 1);
                     model.tensors[module + "g_idx"].bytes[4] = 2;
                   }),
                   "o_proj.g_idx\": column 1 is of group 2, of 2; the file is damaged"));
    CHECK(contains(error_with([&](Respelled& model) {
                     to_gptq(model, 1);
                     Tensor& order = model.tensors[module + "g_idx"];
                     order = {"I32", {63}, order.bytes.substr(4)};
                   }),
                   "o_proj.g_idx\" is I32 [63]: config.json asks for I32 [64]"));
    Respelled nvfp4("nemotron-nvfp4");
    for (auto& [name, tensor] : nvfp4.tensors) {
      if (name == "lm_head.weight_scale") tensor.bytes[5] = '\x7f';
    }
    nvfp4.config["quantization_config"] = {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
    CHECK(contains(nvfp4.error(), "\"lm_head.weight_scale\": scale 5 is NaN or below 0"));
  }
}

}  // namespace published_groups_test
