#include "app/inspect/tensor_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "models/weight_list.h"

namespace hyb::app {
namespace {

TensorRow row_of(const models::CheckedTensor& checked) {
  return {.name = checked.stored->name,
          .dtype = std::string(name_of(checked.stored->dtype)),
          .shape = checked.stored->shape,
          .verdict = checked.verdict,
          .note = checked.fault};
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
  const models::WeightCheck found = models::check_weights(outline.plan, *outline.family, files);
  for (const models::CheckedWeight& weight : found.weights) {
    const bool is_missing = weight.tensor.verdict == TensorVerdict::missing;
    check.rows.push_back(is_missing ? missing_row(weight.weight) : row_of(weight.tensor));
    if (weight.scale_tensor) check.rows.push_back(row_of(*weight.scale_tensor));
  }
  for (const models::CheckedTensor& other : found.others) check.rows.push_back(row_of(other));
  for (const std::string_view name : files.names()) {
    ++check.dtypes[std::string(name_of(files.find(name)->dtype))];
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
