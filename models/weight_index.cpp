#include "models/weight_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/io/quote_name.h"

namespace hyb::models {
namespace {

void refuse_wrong(const CheckedTensor& tensor, const TensorFiles& files) {
  if (tensor.verdict != TensorVerdict::wrong) return;
  const TensorInfo& stored = *tensor.stored;
  throw Error(ErrorKind::model,
              fmt::format("{}: tensor {} is {} [{}]: {}", files.path_of(stored.name).string(),
                          quote_name(stored.name), name_of(stored.dtype),
                          fmt::join(stored.shape, ", "), tensor.fault));
}

void refuse_missing(std::span<const RequiredWeight* const> missing, const TensorFiles& files) {
  if (missing.empty()) return;
  std::vector<std::string> named;
  for (const RequiredWeight* weight : missing.first(std::min<std::size_t>(missing.size(), 3))) {
    named.push_back(fmt::format("{} [{}]", weight->names.front(), fmt::join(weight->shape, ", ")));
  }
  throw Error(ErrorKind::model,
              fmt::format("{}: {} tensors that config.json asks for are missing: {}{}",
                          files.files().front().path().parent_path().string(), missing.size(),
                          fmt::join(named, ", "), named.size() < missing.size() ? ", ..." : ""));
}

}  // namespace

WeightIndex::WeightIndex(const Plan& plan, const Family& family, const TensorFiles& files)
    : files_(&files) {
  const WeightCheck check = check_weights(plan, family, files);
  std::vector<const RequiredWeight*> missing;
  for (const auto& [weight, tensor, scale_tensor, scales] : check.weights) {
    refuse_wrong(tensor, files);
    if (scale_tensor) refuse_wrong(*scale_tensor, files);
    if (tensor.verdict == TensorVerdict::missing) {
      missing.push_back(&weight);
      continue;
    }
    names_.emplace(weight.key, tensor.stored->name);
    if (scales) scales_.emplace(weight.key, *scales);
  }
  refuse_missing(missing, files);
  for (const CheckedTensor& tensor : check.others) {
    refuse_wrong(tensor, files);
    if (tensor.verdict == TensorVerdict::extra) extra_.push_back(tensor.stored->name);
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
