#include "app/quantize/quantized_folder.h"

#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "app/quantize/input_moments.h"
#include "core/base/error.h"
#include "kernels/floats.h"
#include "models/model.h"
#include "tests/models/golden.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace quantized_folder_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;
using kernels::ScaledLevels;
using models::testing::golden_folder;
namespace fs = std::filesystem;

namespace {

constexpr FolderFormat int4 = {"int4-g32", {ScaledLevels::int4, 32}};
constexpr FolderFormat nvfp4 = {"nvfp4", {ScaledLevels::e2m1, 16}};
constexpr FolderFormat int8 = {"int8", {ScaledLevels::int8, 0}};

std::vector<float> alike(const models::WeightKey&, std::int64_t columns) {
  return std::vector<float>(static_cast<std::size_t>(columns), 1.0F);
}

ModelSource source_of(const fs::path& folder) { return ModelSource::find(folder.string(), {}); }

/// Throws after this many tensors: as if killed.
struct Killed {};

void write(const fs::path& from, const fs::path& to, const FolderFormat& format, int threads = 2,
           std::size_t shard_bytes = 1 << 15, int tensors = 1 << 20) {
  QuantizedFolder folder(source_of(from), format, shard_bytes);
  folder.claim(to, "job");
  kernels::Queue queue(kernels::Device::cpu, {.threads = threads});
  folder.write(queue, alike, [&](std::size_t) {
    if (--tensors == 0) throw Killed();
  });
}

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename()] = content(entry.path());
  }
  return files;
}

/// The numbers of a matrix of the folder by the rules of compressed-tensors alone.
std::vector<float> dequantised(const TensorFiles& files, const std::string& weight,
                               std::size_t columns) {
  const auto packed = files.view(weight + "_packed").bytes;
  const TensorView scales = files.view(weight + "_scale");
  const bool is_nvfp4 = files.find(weight + "_global_scale") != nullptr;
  float divisor = 1;
  if (is_nvfp4) std::memcpy(&divisor, files.view(weight + "_global_scale").bytes.data(), 4);
  const auto rows = static_cast<std::size_t>(scales.shape[0]);
  const auto groups = static_cast<std::size_t>(scales.shape[1]);
  const bool is_byte = packed.size() == rows * columns;
  std::vector<float> numbers;
  for (std::size_t i = 0; i < rows * columns; ++i) {
    const auto byte = std::to_integer<unsigned>(packed[is_byte ? i : i / 2]);
    const unsigned code = is_byte ? byte : byte >> (i % 2 * 4) & 15U;
    const float level = is_nvfp4  ? kernels::e2m1_to_float(static_cast<std::uint8_t>(code))
                        : is_byte ? static_cast<float>(code) - 128
                                  : static_cast<float>(code) - 8;
    const auto place = static_cast<std::int64_t>(i / (columns / groups));
    const float scale = kernels::published_value(scales.bytes.data(), scales.dtype, place);
    numbers.push_back(level * (scale * (1 / divisor)));
  }
  return numbers;
}

/// A fixture whose tensors and config.json may be changed.
struct Altered {
  explicit Altered(const fs::path& from) {
    for (const char* file : {"config.json", "model.safetensors"}) {
      folder.write(file, content(from / file));
    }
    TensorFiles files(folder.path());
    files.map();
    for (const std::string_view tensor : files.names()) {
      const TensorInfo& info = *files.find(tensor);
      const auto bytes = files.view(tensor).bytes;
      tensors[info.name] = {{std::string(name_of(info.dtype)), info.shape},
                            {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    }
  }

  void rewrite() const {
    Json header = Json::object();
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      header[name] = {{"dtype", tensor.first.first},
                      {"shape", tensor.first.second},
                      {"data_offsets", {data.size(), data.size() + tensor.second.size()}}};
      data += tensor.second;
    }
    folder.write("model.safetensors", safetensors_bytes(to_text(header), data));
  }
  std::string error(const FolderFormat& format) const {
    rewrite();
    const TemporaryFolder to;
    return error_text([&] { write(folder.path(), to.path() / "out", format); });
  }

  TemporaryFolder folder;
  std::map<std::string, std::pair<std::pair<std::string, std::vector<std::int64_t>>, std::string>>
      tensors;
};

}  // namespace

TEST_SUITE("app/quantized_folder") {
  TEST_CASE("what is written is read as the same numbers, packed, near the published ones") {
    for (const FolderFormat& format : {int4, nvfp4, int8}) {
      CAPTURE(format.name);
      const TemporaryFolder to;
      const fs::path from = golden_folder / "qwen3-moe";
      write(from, to.path(), format);
      CHECK(!fs::exists(to.path() / "hyb-quantize.json"));
      const models::Config config = models::Config::from_folder(to.path());
      const models::Plan plan = models::plan_of(config, false);
      TensorFiles files(to.path()), plain(from);
      const models::Family& family = models::family_of(config);
      const models::WeightIndex index(plan, family, files), plain_index(plan, family, plain);
      files.map();
      plain.map();
      models::FileWeights weights(index), plain_weights(plain_index);
      int matrices = 0;
      for (const models::PlannedMatrix& matrix : models::planned_matrices(plan, plain_index)) {
        const bool is_kept = !matrix.is_linear || !format.written.takes(matrix.columns);
        CHECK((index.groups(matrix.key) == nullptr) == is_kept);
        if (is_kept) continue;
        ++matrices;
        const auto stored = weights.matrix(matrix.key, 1, matrix.rows, matrix.columns, false);
        const auto published =
            plain_weights.matrix(matrix.key, 1, matrix.rows, matrix.columns, false);
        const auto columns = static_cast<std::size_t>(matrix.columns);
        const auto expected = dequantised(files, plain_index.name(matrix.key), columns);
        std::vector<float> row(columns), before(columns);
        double square = 0, off = 0;
        for (std::int64_t n = 0; n < matrix.rows; ++n) {
          kernels::read_numbers(stored.row(n), 0, row);
          kernels::read_numbers(published.row(n), 0, before);
          for (std::size_t k = 0; k < columns; ++k) {
            CHECK(row[k] == expected[static_cast<std::size_t>(n) * columns + k]);
            square += before[k] * before[k];
            off += (row[k] - before[k]) * (row[k] - before[k]);
          }
        }
        CHECK(off < square * (format.written.levels == ScaledLevels::int8 ? 1e-4 : 0.02));
        CHECK(off > 0);
      }
      // Experts are one by one here; of int4 only the matrices of 64 columns are groups of 32.
      CHECK(matrices == (format.written.group == 32 ? 3 : 3 * (4 + 3 * 6)));
      const auto config_json = parse_json(content(to.path() / "config.json"), "config.json");
      CHECK(config_json["quantization_config"]["quant_method"] == "compressed-tensors");
      std::set<std::string> ignored = config_json["quantization_config"]["ignore"];
      CHECK(ignored.contains("lm_head"));
      CHECK(ignored.contains("model.layers.0.mlp.gate"));
      models::testing::Loaded loaded(to.path(), DType::bf16, kernels::best_isa());
      using kernels::WeightCode;
      CHECK(loaded.model.weights.matrices[static_cast<std::size_t>(WeightCode::groups)] > 0);
    }
  }

  TEST_CASE("what is read by its columns stays plain: MLA's keys and values of latents") {
    const TemporaryFolder to;
    write(golden_folder / "kimi-linear", to.path(), int8);
    const TensorFiles files(to.path());
    std::size_t plain = 0, packed = 0;
    for (const std::string_view name : files.names()) {
      plain += name.ends_with("kv_b_proj.weight") ? 1 : 0;
      packed += name.ends_with("o_proj.weight_packed") ? 1 : 0;
      CHECK_FALSE(name.ends_with("kv_b_proj.weight_packed"));
    }
    CHECK(plain > 0);
    CHECK(packed > 0);
  }

  TEST_CASE("joined matrices share a unit, as engines that join them want") {
    Altered altered(golden_folder / "qwen3-dense");
    for (const char* large : {"self_attn.k_proj", "mlp.up_proj"}) {
      std::string& bytes =
          altered.tensors.at("model.layers.1." + std::string(large) + ".weight").second;
      bytes[0] = '\x80', bytes[1] = '\x42';  // 64
    }
    altered.rewrite();
    const TemporaryFolder to;
    write(altered.folder.path(), to.path(), nvfp4);
    TensorFiles files(to.path());
    files.map();
    const auto unit = [&](const std::string& module) {
      const auto bytes = files.view("model.layers.1." + module + ".weight_global_scale").bytes;
      return kernels::published_value(bytes.data(), DType::f32, 0);
    };
    CHECK(unit("self_attn.k_proj") == 16);
    CHECK(unit("self_attn.q_proj") == 16);
    CHECK(unit("self_attn.v_proj") == 16);
    CHECK(unit("self_attn.o_proj") > 1000);
    CHECK(unit("mlp.gate_proj") == 16);
  }

  TEST_CASE("bytes do not depend on threads, and a rerun adds what a kill left out") {
    const fs::path from = golden_folder / "qwen3-dense";
    const TemporaryFolder whole, killed;
    write(from, whole.path(), int4, 1);
    const auto expected = files_in(whole.path());
    CHECK(expected.size() > 5);
    CHECK(expected.contains("model.safetensors.index.json"));
    for (const int tensors : {1, 5, 20}) {
      CHECK_THROWS_AS(write(from, killed.path(), int4, 3, 1 << 15, tensors), Killed);
      CHECK(!fs::exists(killed.path() / "config.json"));
    }
    const auto first = killed.path() / "model-00001-of-00004.safetensors";
    REQUIRE(fs::exists(first));
    const auto time = fs::last_write_time(first);
    write(from, killed.path(), int4, 3);
    CHECK(fs::last_write_time(first) == time);
    CHECK(files_in(killed.path()) == expected);
  }

  TEST_CASE("a folder with anything else in it is left alone") {
    const fs::path from = golden_folder / "qwen3-dense";
    const TemporaryFolder to;
    CHECK_THROWS_AS(write(from, to.path(), int4, 1, 1 << 15, 3), Killed);
    QuantizedFolder other(source_of(from), int4);
    CHECK(contains(error_text([&] { other.claim(to.path(), "another"); }),
                   "holds what another command began"));
    const TemporaryFolder full;
    full.write("novel.txt", "mine");
    CHECK(contains(error_text([&] { other.claim(full.path(), "job"); }), "is not empty"));
    CHECK(files_in(full.path()).size() == 1);
    CHECK(
        contains(error_text([&] { other.claim(full.path() / "novel.txt", "job"); }), "novel.txt"));
    CHECK(contains(error_text([&] { other.claim("/proc/no-folder", "job"); }), "can't be made"));
  }

  TEST_CASE("what cannot be quantised is said by name") {
    Altered altered(golden_folder / "qwen3-dense");
    const std::string matrix = "model.layers.1.mlp.down_proj.weight";
    auto& tensor = altered.tensors.at(matrix);
    const auto before = tensor;
    tensor.second[1] = '\x7f', tensor.second[0] = '\xc0';  // NaN of bf16
    CHECK(contains(altered.error(int8), "model.layers.1.mlp.down_proj.weight\" has numbers that"));
    tensor = before;
    altered.tensors[matrix + "_shape"] = {{"BF16", {1}}, std::string(2, '\0')};
    CHECK(contains(altered.error(int8), "down_proj.weight_shape\" would be there twice"));
    altered.tensors.erase(matrix + "_shape");
    altered.tensors["../../\x1b[2J\"}"] = {{"BF16", {1}}, std::string(2, '\0')};
    CHECK(altered.error(int8) == "");  // only a name
    CHECK(contains(error_text([&] {
                     write(golden_folder / "qwen3_5-int4", altered.folder.path() / "out", int4);
                   }),
                   "is quantised already"));
    const fs::path gguf = golden_folder / "qwen3-dense/model.gguf";
    CHECK(contains(error_text([&] { write(gguf, altered.folder.path() / "out", int4); }),
                   "give the folder that it was made of"));
  }

  TEST_CASE("packed bytes with zero points are refused") {
    const TemporaryFolder to;
    write(golden_folder / "qwen3-dense", to.path(), int8, 1, 1 << 30);
    Altered altered(to.path());
    const std::string matrix = "model.layers.1.mlp.down_proj.weight";
    const auto rows = altered.tensors.at(matrix + "_scale").first.second.front();
    altered.tensors[matrix + "_zero_point"] = {
        {"I32", {(rows + 3) / 4, 1}}, std::string(static_cast<std::size_t>((rows + 3) / 4 * 4), 0)};
    altered.rewrite();
    const auto load = [&] {
      models::testing::Loaded(altered.folder.path(), DType::bf16, kernels::best_isa());
    };
    CHECK(contains(model_error(load), "zero points of 8 packed bits are not read"));
  }

  TEST_CASE("moments are those of each matrix's own inputs, whatever the threads are") {
    const fs::path from = golden_folder / "qwen3-moe";
    const models::testing::Golden golden("qwen3-moe");
    const auto moments_of = [&](int threads, InputMoments& moments) {
      models::testing::Loaded loaded(
          [&](kernels::Queue& on) {
            TensorFiles files(from);
            return models::load_model(on, models::Config::from_folder(from), files,
                                      {.load = {.activation = DType::bf16}},
                                      {.packed = moments.packed_call()});
          },
          kernels::Device::cpu, {.threads = threads});
      loaded.queue.set_observer(&moments);
      loaded.run(golden.prompts.front(), 0);
    };
    InputMoments moments, others;
    moments_of(1, moments);
    moments_of(3, others);
    const std::vector<float> none(48, 1.0F);
    const auto of = [&](const InputMoments& from_them, models::Role role, std::int32_t expert,
                        std::int64_t columns) {
      return from_them.importance({.role = role, .layer = 1, .expert = expert}, columns);
    };
    int seen = 0;
    std::set<std::vector<float>> different;
    for (std::int32_t e = 0; e < 6; ++e) {
      CHECK(of(moments, "moe.expert_gate", e, 48) == of(others, "moe.expert_gate", e, 48));
      CHECK(of(moments, "moe.expert_gate", e, 48) == of(moments, "moe.expert_up", e, 48));
      CHECK(of(moments, "moe.expert_down", e, 16) == of(others, "moe.expert_down", e, 16));
      seen += of(moments, "moe.expert_gate", e, 48) != none ? 1 : 0;
      different.insert(of(moments, "moe.expert_gate", e, 48));
    }
    CHECK(seen >= 2);
    CHECK(different.size() >= 2);
    CHECK(of(moments, "ssd.in_proj", -1, 48) == none);
    CHECK(of(moments, "attention.q", -1, 48) == of(moments, "attention.v", -1, 48));
    CHECK(of(moments, "attention.q", -1, 48) != none);
  }
}

}  // namespace quantized_folder_test
