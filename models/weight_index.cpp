#include "models/weight_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

void check(const RequiredWeight& weight, const TensorInfo& found, const TensorFiles& files) {
  const auto fail = [&](const std::string& text) {
    throw Error(ErrorKind::model,
                fmt::format("{}: tensor {}: {}", files.path_of(found.name).string(),
                            quote_name(found.name), text));
  };
  if (found.shape != weight.shape) {
    fail(fmt::format("shape is {}, config.json asks for {}", shown(found.shape),
                     shown(weight.shape)));
  }
  if (found.dtype != DType::bf16 && found.dtype != DType::f16 && found.dtype != DType::f32) {
    fail(fmt::format("dtype is {}; BF16, F16 and F32 are read, quantised weights are not",
                     name_of(found.dtype)));
  }
}

}  // namespace

bool is_known_unused(const Plan& plan, const Family& family, std::string_view name) {
  if (plan.tied_head && name == "lm_head.weight") return true;  // a copy of the embedding
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
    if (!used.contains(name) && !is_known_unused(plan, family, name)) extra_.emplace_back(name);
  }
}

const std::string& WeightIndex::name(const WeightKey& key) const {
  const auto found = names_.find(key);
  require(found != names_.end(),
          fmt::format("WeightIndex: {} of layer {}, expert {}, is a weight of the plan", key.role,
                      key.layer, key.expert));
  return found->second;
}

}  // namespace hyb::models
