#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/tensor_files.h"
#include "models/weight_list.h"

namespace hyb::models {

/// Whether hyb knows what a tensor is and leaves it: draft layers, vision, the copy of a tied head,
/// scales of quantised activations (weights are dequantised, activations stay bf16).
bool is_known_unused(const Plan& plan, const Family& family, std::string_view name);

/// Whether a required weight may be stored as F8_E4M3.
bool takes_fp8(const RequiredWeight& weight);

/// The tensor of a weight's scales; nullptr: there is none.
const TensorInfo* find_scales(const TensorInfo& weight, const TensorFiles& files);

/// The scales of a weight that is stored as F8_E4M3.
struct StoredScales {
  std::string name;                      ///< of their tensor
  std::int64_t row_block, column_block;  ///< of a matrix; each expert's begins with a new block
  std::int64_t per_expert;               ///< how many
};

/// How scales lie, by the shapes of both; none: they are not this weight's.
std::optional<StoredScales> layout_of(const TensorInfo& scales, const TensorInfo& weight);

/// The required weights of a model, found in its files and checked. TensorFiles must outlive it.
class WeightIndex {
 public:
  /// Throws Error(model) naming tensor, expected and found: missing tensors (the first ones and how
  /// many), wrong shape, a dtype other than BF16, F16 or F32; for matrices F8_E4M3, too, with
  /// scales in P_scale ([], [1]: of all; [out], [out, 1]: of rows) or P_scale_inv (of blocks of 128
  /// x 128), P being the weight's name. Experts in one tensor have theirs behind a first dimension.
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
