#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/tensor_files.h"
#include "models/weight_list.h"

namespace hyb::models {

/// Whether hyb knows what a tensor is and leaves it: draft layers, vision, the copy of a tied head.
bool is_known_unused(const Plan& plan, const Family& family, std::string_view name);

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

  /// Tensors in the files that neither the plan nor the family knows.
  const std::vector<std::string>& extra() const { return extra_; }

 private:
  const TensorFiles* files_;
  std::map<WeightKey, std::string> names_;
  std::vector<std::string> extra_;
};

}  // namespace hyb::models
