#include "models/weight_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "core/base/error.h"
#include "core/io/quote_name.h"

namespace hyb::models {
namespace {

std::string shown(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

const TensorInfo* find_any(const RequiredWeight& weight, const TensorFiles& files) {
  for (const std::string& name : weight.names) {
    if (const TensorInfo* found = files.find(name)) return found;
  }
  return nullptr;
}

[[noreturn]] void fail(const TensorFiles& files, const TensorInfo& found, const std::string& text) {
  throw Error(ErrorKind::model, fmt::format("{}: tensor {}: {}", files.path_of(found.name).string(),
                                            quote_name(found.name), text));
}

bool is_plain(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

void check(const RequiredWeight& weight, const TensorInfo& found, const TensorFiles& files) {
  if (found.shape != weight.shape) {
    fail(files, found,
         fmt::format("shape is {}, config.json asks for {}", shown(found.shape),
                     shown(weight.shape)));
  }
  if (is_plain(found.dtype)) return;
  if (found.dtype == DType::f8_e4m3 && takes_fp8(weight)) return;
  fail(files, found,
       fmt::format("dtype is {}; BF16, F16 and F32 are read, of matrices F8_E4M3",
                   name_of(found.dtype)));
}

/// Finds and checks the scales of a weight in F8_E4M3.
StoredScales scales_of(const TensorInfo& found, const TensorFiles& files) {
  const TensorInfo* const scales = find_scales(found, files);
  if (scales == nullptr) fail(files, found, "is F8_E4M3, but has neither _scale nor _scale_inv");
  const std::optional<StoredScales> layout = layout_of(*scales, found);
  if (!layout) {
    fail(files, *scales,
         fmt::format("{} {} are no BF16, F16 or F32 scales of {}, of its rows or of blocks of 128 "
                     "x 128",
                     name_of(scales->dtype), shown(scales->shape), shown(found.shape)));
  }
  return *layout;
}

}  // namespace

bool takes_fp8(const RequiredWeight& weight) {
  return weight.shape.size() >= 2 && !weight.key.role.ends_with("conv_weight") &&
         weight.key.role != "conv.weight";
}

const TensorInfo* find_scales(const TensorInfo& weight, const TensorFiles& files) {
  const TensorInfo* const inverse = files.find(weight.name + "_scale_inv");
  return inverse != nullptr ? inverse : files.find(weight.name + "_scale");
}

std::optional<StoredScales> layout_of(const TensorInfo& scales, const TensorInfo& weight) {
  constexpr std::int64_t block = 128;
  std::span<const std::int64_t> own = scales.shape;
  const std::span<const std::int64_t> shape = weight.shape;
  const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (!is_plain(scales.dtype)) return std::nullopt;
  if (shape.size() == 3) {
    if (own.empty() || own.front() != shape.front()) return std::nullopt;
    own = own.subspan(1);
  }
  const std::int64_t row_blocks = (rows + block - 1) / block;
  const std::int64_t column_blocks = (columns + block - 1) / block;
  const StoredScales blocks = {scales.name, block, block, row_blocks * column_blocks};
  const bool is_blocks = own.size() == 2 && own[0] == row_blocks && own[1] == column_blocks;
  if (scales.name.ends_with("_inv")) return is_blocks ? std::optional(blocks) : std::nullopt;
  const bool is_one = std::all_of(own.begin(), own.end(), [](std::int64_t d) { return d == 1; });
  if (is_one && own.size() <= 2) return StoredScales{scales.name, rows, columns, 1};
  if (own.front() == rows && (own.size() == 1 || (own.size() == 2 && own[1] == 1))) {
    return StoredScales{scales.name, 1, columns, rows};
  }
  return is_blocks ? std::optional(blocks) : std::nullopt;
}

bool is_known_unused(const Plan& plan, const Family& family, std::string_view name) {
  if (plan.tied_head && role_of(family, name) == "head") return true;  // load_model compares it
  for (const std::string_view end : {".input_scale", ".k_scale", ".v_scale"}) {
    if (name.ends_with(end)) return true;
  }
  return std::any_of(family.unused.begin(), family.unused.end(),
                     [&](std::string_view start) { return name.starts_with(start); });
}

WeightIndex::WeightIndex(const Plan& plan, const Family& family, const TensorFiles& files)
    : files_(&files) {
  std::unordered_set<std::string_view> used;
  std::vector<std::string> missing;
  for (const RequiredWeight& weight : required_weights(plan, family, &files)) {
    const TensorInfo* found = find_any(weight, files);
    if (found == nullptr) {
      missing.push_back(fmt::format("{} {}", weight.names.front(), shown(weight.shape)));
      continue;
    }
    check(weight, *found, files);
    names_.emplace(weight.key, found->name);
    used.insert(found->name);
    if (found->dtype != DType::f8_e4m3) continue;
    const auto& [key, scales] = *scales_.emplace(weight.key, scales_of(*found, files)).first;
    used.insert(scales.name);
  }
  if (!missing.empty()) {
    const std::size_t named = std::min<std::size_t>(missing.size(), 3);
    throw Error(
        ErrorKind::model,
        fmt::format("{}: {} tensors that config.json asks for are missing: {}{}",
                    files.files().front().path().parent_path().string(), missing.size(),
                    fmt::join(missing.begin(), missing.begin() + std::ptrdiff_t(named), ", "),
                    named < missing.size() ? ", ..." : ""));
  }
  for (const std::string_view name : files.names()) {
    if (used.contains(name) || is_known_unused(plan, family, name)) continue;
    if (const std::string_view role = role_of(family, name); !role.empty()) {
      throw Error(
          ErrorKind::model,
          fmt::format("{}: tensor {} is a {} for which config.json has no place; one of the "
                      "two belongs to another model",
                      files.path_of(name).string(), quote_name(std::string(name)), role));
    }
    extra_.emplace_back(name);
  }
}

const StoredScales* WeightIndex::scales(const WeightKey& key) const {
  const auto found = scales_.find(key);
  return found == scales_.end() ? nullptr : &found->second;
}

const std::string& WeightIndex::name(const WeightKey& key) const {
  const auto found = names_.find(key);
  require(found != names_.end(),
          fmt::format("WeightIndex: {} of layer {}, expert {}, is a weight of the plan", key.role,
                      key.layer, key.expert));
  return found->second;
}

}  // namespace hyb::models
