#pragma once

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/models/golden_drafts.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"
#include "tests/support/plans.h"

namespace hyb::models::testing {

inline const std::filesystem::path heads_folder = tests_folder() / "heads";

/// Of a head's name, which those of the kind DFlash end.
inline std::string model_of_head(const std::string& name) {
  constexpr std::string_view end = "-dflash";
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

inline Model load_with_head(kernels::Queue& queue, const std::string& model,
                            const std::filesystem::path& head, const GeometryOptions& options) {
  TensorFiles files(golden_folder / model);
  HeadFolder folder = {.config = Config::from_folder(head), .files = TensorFiles(head)};
  return load_model(queue, Config::from_folder(golden_folder / model), files, options, {}, &folder);
}

inline DraftWorld world_with_head(const std::string& name, DType activation, kernels::Isa isa,
                                  bool is_flat, std::int32_t page = page_tokens_default,
                                  std::optional<DType> kv = {}) {
  return DraftWorld(
      [&](kernels::Queue& queue) {
        return load_with_head(queue, model_of_head(name), heads_folder / name,
                              {.load = {.activation = activation}, .kv = kv, .page_tokens = page});
      },
      kernels::Device::cpu, {.threads = 2, .isa = isa}, is_flat);
}

/// Checks that heads guess what the float64 reference does, at every level of instructions.
inline void check_golden_guesses(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const Golden golden(model_of_head(name));
    for (const kernels::Isa isa : levels()) {
      CAPTURE(name);
      DraftWorld world = world_with_head(name, DType::f32, isa, true);
      const double difference = largest_difference(world, golden, heads_folder / name);
      MESSAGE(name, " level ", static_cast<int>(isa), ": ", difference);
      CHECK(difference <= 2e-4);
    }
  }
}

/// Checks drafts_change_nothing in both types of activations, kinds of pools and sizes of pages.
inline void check_drafts_change_nothing(const std::vector<std::string>& names) {
  unsigned seed = 1;
  for (const std::string& name : names) {
    for (const DType activation : {DType::bf16, DType::f32}) {
      for (const bool is_flat : {true, false}) {
        CAPTURE(name);
        const std::int32_t page = seed % 2 == 0 ? 16 : 32;
        DraftWorld world = world_with_head(name, activation, kernels::best_isa(), is_flat, page);
        CHECK(drafts_change_nothing(world, seed++, drafts_sampling()));
      }
    }
  }
}

/// A copy of a head, to be damaged.
struct CopiedHead {
  explicit CopiedHead(const std::string& name) : model(model_of_head(name)) {
    for (const char* file : {"config.json", "model.safetensors"}) {
      folder.write(file, hyb::testing::content(heads_folder / name / file));
    }
  }

  /// With other values in config.json; null: without the key.
  CopiedHead& with(const Json& values) {
    Json config = parse_json(hyb::testing::content(folder.path() / "config.json"), "config");
    config.merge_patch(values);
    folder.write("config.json", config.dump());
    return *this;
  }

  /// change(header, data) of the tensors' file.
  template <typename Change>
  CopiedHead& with_tensors(Change change) {
    const std::string bytes = hyb::testing::content(folder.path() / "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    Json header = parse_json(bytes.substr(8, length), "header");
    std::string data = bytes.substr(8 + length);
    change(header, data);
    folder.write("model.safetensors", hyb::testing::safetensors_bytes(header.dump(), data));
    return *this;
  }

  /// Another name for a tensor.
  CopiedHead& renamed(const std::string& from, const std::string& to) {
    return with_tensors([&](Json& header, std::string&) {
      header[to] = header[from];
      header.erase(from);
    });
  }

  /// Another entry of d2t.
  CopiedHead& with_offset(std::size_t entry, std::int64_t offset) {
    return with_tensors([&](const Json& header, std::string& data) {
      const auto begin = header["d2t"]["data_offsets"][0].get<std::size_t>();
      std::memcpy(data.data() + begin + entry * sizeof offset, &offset, sizeof offset);
    });
  }

  std::string error() const {
    kernels::Queue queue(kernels::Device::cpu, {.threads = 1, .isa = {}});
    return hyb::testing::model_error(
        [&] { load_with_head(queue, model, folder.path(), {.load = {.activation = DType::f32}}); });
  }

  std::string model;
  hyb::testing::TemporaryFolder folder;
};

}  // namespace hyb::models::testing
