#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/io/tensor_files.h"
#include "models/families.h"
#include "models/plan.h"

namespace hyb::models {

/// Where a weight belongs. Model-wide ones (embed, final_norm, head) have layer -1; only tensors
/// that are stored one per expert have an expert.
struct WeightKey {
  std::string_view role;
  std::int32_t layer = -1;
  std::int32_t expert = -1;

  auto operator<=>(const WeightKey&) const = default;
};

/// One tensor that a plan needs, as it is stored in the published files.
struct RequiredWeight {
  WeightKey key;
  std::vector<std::string> names;  ///< spellings in use, in order of preference
  std::vector<std::int64_t> shape;
};

/// Every tensor the plan needs, in layer order. The head is not listed when it is tied.
/// Throws Error(model) when the plan asks for more than 1,000,000 tensors or 2^60 parameters.
std::vector<RequiredWeight> required_weights(const Plan& plan, const Family& family);

/// Number of parameters; a tied head counts once.
std::int64_t parameters(const std::vector<RequiredWeight>& weights);

/// The required weights of a model, found in its files and checked. TensorFiles must outlive it.
class WeightIndex {
 public:
  /// Throws Error(model) naming tensor, expected and found: missing tensors (the first ones and how
  /// many), wrong shape, a dtype other than BF16, F16 or F32.
  WeightIndex(const Plan& plan, const Family& family, const TensorFiles& files);

  bool has(const WeightKey& key) const { return names_.contains(key); }

  /// The name in the files of a weight which is there.
  const std::string& name(const WeightKey& key) const;

  /// The bytes of a weight which is there; files.map() was called before.
  TensorView view(const WeightKey& key) const { return files_->view(name(key)); }

  /// Gives back the physical pages of a weight that was packed elsewhere.
  void drop(const WeightKey& key) const { files_->drop(name(key)); }

  /// Tensors in the files that the plan does not need.
  const std::vector<std::string>& extra() const { return extra_; }

 private:
  const TensorFiles* files_;
  std::map<WeightKey, std::string> names_;
  std::vector<std::string> extra_;
};

}  // namespace hyb::models
