#include "app/inspect/tensor_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "models/weight_index.h"
#include "models/weight_list.h"

namespace hyb::app {
namespace {

const TensorInfo* find_any(const models::RequiredWeight& weight, const TensorFiles& files) {
  for (const std::string& name : weight.names) {
    if (const TensorInfo* found = files.find(name)) return found;
  }
  return nullptr;
}

bool is_read(const models::RequiredWeight& weight, DType dtype) {
  if (dtype == DType::f8_e4m3) return models::takes_fp8(weight);
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

TensorRow scales_row(const TensorInfo& scales, const TensorInfo& weight) {
  TensorRow row = {.name = scales.name,
                   .dtype = std::string(name_of(scales.dtype)),
                   .shape = scales.shape,
                   .verdict = TensorVerdict::right,
                   .note = {}};
  if (models::layout_of(scales, weight)) return row;
  row.verdict = TensorVerdict::wrong;
  row.note = "no scales of " + shape_text(weight.shape);
  return row;
}

TensorRow row_of(const models::RequiredWeight& weight, const TensorInfo& found,
                 const TensorFiles& files) {
  TensorRow row = {.name = found.name,
                   .dtype = std::string(name_of(found.dtype)),
                   .shape = found.shape,
                   .verdict = TensorVerdict::right,
                   .note = {}};
  if (found.shape != weight.shape) {
    row.note = "config.json asks for " + shape_text(weight.shape);
  } else if (!is_read(weight, found.dtype)) {
    row.note = "BF16, F16 and F32 are read, of matrices F8_E4M3";
  } else if (found.dtype == DType::f8_e4m3 && models::find_scales(found, files) == nullptr) {
    row.note = "has neither _scale nor _scale_inv";
  }
  if (!row.note.empty()) row.verdict = TensorVerdict::wrong;
  return row;
}

TensorRow missing_row(const models::RequiredWeight& weight) {
  return {.name = weight.names.front(),
          .dtype = {},
          .shape = weight.shape,
          .verdict = TensorVerdict::missing,
          .note = {}};
}

}  // namespace

const char* name_of(TensorVerdict verdict) {
  switch (verdict) {
    case TensorVerdict::right:
      return "ok";
    case TensorVerdict::missing:
      return "missing";
    case TensorVerdict::wrong:
      return "wrong";
    case TensorVerdict::unused:
      return "unused";
    case TensorVerdict::extra:
      break;
  }
  return "extra";
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::int64_t TensorCheck::count(TensorVerdict verdict) const {
  return std::count_if(rows.begin(), rows.end(),
                       [&](const TensorRow& row) { return row.verdict == verdict; });
}

TensorCheck check_tensors(const ModelOutline& outline, const TensorFiles& files) {
  TensorCheck check;
  check.files = files.files().size();
  check.bytes = files.bytes();
  std::unordered_set<std::string_view> used;
  const auto is_unused = [&](std::string_view name) {
    return models::is_known_unused(outline.plan, *outline.family, name);
  };
  for (const auto& weight : models::required_weights(outline.plan, *outline.family, &files)) {
    const TensorInfo* found = find_any(weight, files);
    check.rows.push_back(found == nullptr ? missing_row(weight) : row_of(weight, *found, files));
    if (found == nullptr) continue;
    used.insert(found->name);
    if (found->dtype != DType::f8_e4m3) continue;
    const TensorInfo* const scales = models::find_scales(*found, files);
    if (scales == nullptr || !used.insert(scales->name).second) continue;
    check.rows.push_back(scales_row(*scales, *found));
  }
  for (const std::string_view name : files.names()) {
    const TensorInfo& info = *files.find(name);
    ++check.dtypes[std::string(name_of(info.dtype))];
    if (used.contains(name)) continue;
    check.rows.push_back({.name = info.name,
                          .dtype = std::string(name_of(info.dtype)),
                          .shape = info.shape,
                          .verdict = is_unused(name) ? TensorVerdict::unused : TensorVerdict::extra,
                          .note = {}});
  }
  return check;
}

TensorCheck required_tensors(const ModelOutline& outline) {
  TensorCheck check;
  for (const auto& weight : models::required_weights(outline.plan, *outline.family)) {
    check.rows.push_back(missing_row(weight));
  }
  return check;
}

}  // namespace hyb::app
