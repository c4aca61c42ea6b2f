#include "models/weight_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_set>
#include <utility>

namespace hyb::models {
namespace {

std::string shown(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_plain(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

bool takes_fp8(const RequiredWeight& weight) {
  return weight.shape.size() >= 2 && !weight.key.role.ends_with("conv_weight") &&
         weight.key.role != "conv.weight";
}

const TensorInfo* find_any(const std::vector<std::string>& names, const TensorFiles& files) {
  for (const std::string& name : names) {
    if (const TensorInfo* found = files.find(name)) return found;
  }
  return nullptr;
}

CheckedTensor wrong(const TensorInfo& stored, std::string fault) {
  return {TensorVerdict::wrong, &stored, std::move(fault)};
}

CheckedTensor check_stored(const RequiredWeight& weight, const TensorInfo& stored,
                           const TensorInfo* scales) {
  const bool is_fp8 = stored.dtype == DType::f8_e4m3;
  if (stored.shape != weight.shape) {
    return wrong(stored, "config.json asks for " + shown(weight.shape));
  }
  if (!is_plain(stored.dtype) && !(is_fp8 && takes_fp8(weight))) {
    return wrong(stored, "BF16, F16 and F32 are read, of matrices F8_E4M3");
  }
  if (is_fp8 && scales == nullptr) return wrong(stored, "it has neither _scale nor _scale_inv");
  return {TensorVerdict::right, &stored};
}

CheckedWeight check(RequiredWeight weight, const TensorFiles& files) {
  const TensorInfo* const stored = find_any(weight.names, files);
  if (stored == nullptr) return {std::move(weight), {TensorVerdict::missing, nullptr}};
  const TensorInfo* scales = nullptr;
  if (stored->dtype == DType::f8_e4m3) {
    scales = find_any({stored->name + "_scale_inv", stored->name + "_scale"}, files);
  }
  CheckedTensor tensor = check_stored(weight, *stored, scales);
  CheckedWeight checked = {std::move(weight), std::move(tensor)};
  if (scales == nullptr) return checked;
  checked.scales = scales_layout(*scales, *stored);
  checked.scale_tensor =
      checked.scales
          ? CheckedTensor{TensorVerdict::right, scales}
          : wrong(*scales, fmt::format("no BF16, F16 or F32 scales of {}, of its rows or of blocks "
                                       "of 128 x 128",
                                       shown(stored->shape)));
  return checked;
}

/// A tensor that the plan doesn't ask for.
CheckedTensor check_other(const Plan& plan, const Family& family, const TensorInfo& stored) {
  if (is_known_unused(plan, family, stored.name)) return {TensorVerdict::unused, &stored};
  const std::string_view role = role_of(family, stored.name);
  if (role.empty()) return {TensorVerdict::extra, &stored};
  return wrong(stored, fmt::format("a {} for which config.json has no place; one of the two "
                                   "belongs to another model",
                                   role));
}

}  // namespace

std::optional<StoredScales> scales_layout(const TensorInfo& scales, const TensorInfo& weight) {
  constexpr std::int64_t block = 128;
  std::span<const std::int64_t> own = scales.shape;
  const std::span<const std::int64_t> shape = weight.shape;
  if (shape.size() < 2 || !is_plain(scales.dtype)) return std::nullopt;
  const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
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

WeightCheck check_weights(const Plan& plan, const Family& family, const TensorFiles& files) {
  WeightCheck all;
  std::unordered_set<std::string_view> used;
  for (RequiredWeight& weight : required_weights(plan, family, &files)) {
    const CheckedWeight& checked = all.weights.emplace_back(check(std::move(weight), files));
    if (checked.tensor.stored != nullptr) used.insert(checked.tensor.stored->name);
    if (checked.scale_tensor) used.insert(checked.scale_tensor->stored->name);
  }
  for (const std::string_view name : files.names()) {
    if (used.contains(name)) continue;
    all.others.push_back(check_other(plan, family, *files.find(name)));
  }
  return all;
}

std::int64_t fp8_parameters(const Plan& plan, const Family& family, const TensorFiles& files) {
  std::int64_t count = 0;
  for (const CheckedWeight& checked : check_weights(plan, family, files).weights) {
    const TensorInfo* const stored = checked.tensor.stored;
    if (checked.tensor.verdict != TensorVerdict::right || stored->dtype != DType::f8_e4m3) continue;
    count += std::accumulate(stored->shape.begin(), stored->shape.end(), std::int64_t{1},
                             std::multiplies<>());
  }
  return count;
}

}  // namespace hyb::models
