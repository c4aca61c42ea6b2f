#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/tensor_files.h"
#include "models/weight_check.h"

namespace hyb::models {

/// The required weights of a model, found in its files and checked. TensorFiles must outlive it.
class WeightIndex {
 public:
  /// Throws Error(model) for the first tensor that check_weights finds wrong, naming it and what is
  /// wrong, or for missing ones: the first and how many.
  WeightIndex(const Plan& plan, const Family& family, const TensorFiles& files);

  bool has(const WeightKey& key) const { return names_.contains(key); }

  /// The name in the files of a weight which is there.
  const std::string& name(const WeightKey& key) const;

  /// The bytes of a weight which is there; files.map() was called before.
  TensorView view(const WeightKey& key) const { return files_->view(name(key)); }

  /// Of a weight which is there; nullptr: it has none.
  const StoredScales* scales(const WeightKey& key) const;
  TensorView scales_view(const StoredScales& scales) const { return files_->view(scales.name); }

  /// Gives back the physical pages of a weight that was packed elsewhere.
  void drop(const WeightKey& key) const { files_->drop(name(key)); }

  /// Tensors in the files that neither the plan nor the family knows.
  const std::vector<std::string>& extra() const { return extra_; }

 private:
  const TensorFiles* files_;
  std::map<WeightKey, std::string> names_;
  std::map<WeightKey, StoredScales> scales_;
  std::vector<std::string> extra_;
};

}  // namespace hyb::models
