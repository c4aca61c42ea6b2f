#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/tensor_files.h"
#include "models/families.h"
#include "models/geometry.h"
#include "models/plan.h"
#include "models/published_groups.h"

namespace hyb::models {

/// Names a weight and its place. Model-wide ones (embed, final_norm, head) have layer -1; only
/// tensors that are stored one per expert have an expert, or the use of a block that layers share.
struct WeightKey {
  Role role;
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

/// Returns every tensor the plan needs, in layer order. The head is not listed when it is tied.
/// Where the family names two layouts, it is the one that `files` have, or without files the first.
/// A plan with a head has the tensors of the head where the family is a head's, else of the model.
/// Throws Error(model) when the plan asks for more than 1,000,000 tensors or 2^60 parameters.
std::vector<RequiredWeight> required_weights(const Plan& plan, const Family& family,
                                             const TensorFiles* files = nullptr);

/// The role of a tensor in any layer and expert, by its name alone; none where it is not one of the
/// family's.
Role role_of(const Family& family, std::string_view name);

/// Number of parameters; a tied head counts once.
std::int64_t parameters(const std::vector<RequiredWeight>& weights);

/// Says whether a tensor is known and ignored: draft layers, vision, the copy of a tied head,
/// scales of quantised activations (weights are dequantised, activations stay bf16).
bool is_known_unused(const Plan& plan, const Family& family, std::string_view name);

/// Says whether the files have the tensors of the family's draft layer, going by one of them.
bool has_draft_layer(const Family& family, const TensorFiles& files);

/// The scales of a weight that is stored as F8_E4M3 or MXFP4.
struct StoredScales {
  std::string name;                      ///< of their tensor
  std::int64_t row_block, column_block;  ///< of a matrix; each expert starts a new block
  std::int64_t per_expert;               ///< their number
};

/// The layout of scales, by the shapes of both; none: they are not this weight's.
std::optional<StoredScales> scales_layout(const TensorInfo& scales, const TensorInfo& weight);

/// unused: known, but not used by hyb; extra: unknown.
enum class TensorVerdict : std::uint8_t { right, missing, wrong, unused, extra };

/// A tensor compared with a plan.
struct CheckedTensor {
  TensorVerdict verdict;
  const TensorInfo* stored;  ///< in the files; nullptr: missing
  std::string fault = {};    ///< of a wrong one: "config.json asks for [8]"
};

struct CheckedWeight {
  RequiredWeight weight;
  CheckedTensor tensor;
  std::vector<CheckedTensor> beside = {};      ///< its scales and what else belongs to codes
  std::optional<StoredScales> scales = {};     ///< of F8_E4M3 or MXFP4, where they are right
  std::optional<PublishedGroups> groups = {};  ///< of a matrix in groups, where they are
};

/// Decides whether a model can be loaded, for the loader and for reports before it. The files
/// outlive it.
struct WeightCheck {
  std::vector<CheckedWeight> weights;  ///< of the plan, in its order
  std::vector<CheckedTensor> others;   ///< what else is in the files
};

/// Right is a weight of the plan's shape in BF16, F16 or F32; a matrix in F8_E4M3, too, with scales
/// in P_scale or P_scale_inv ([], [1]: of all; [out], [out, 1]: of rows; or of blocks of 128 x
/// 128), P being the weight's name; or in MXFP4, as U8 [..., groups of 32, 16], with scales [...,
/// groups] of U8, P_blocks and P_scales; or in groups as published_groups.h says. Scales of experts
/// in one tensor have the expert as first dimension. A tensor whose name is one of the family's,
/// but which the plan does not need, is wrong as well. Throws Error(model) as required_weights
/// does.
WeightCheck check_weights(const Plan& plan, const Family& family, const TensorFiles& files);

/// The plan's parameters that the files have as F8_E4M3. Throws as required_weights does.
std::int64_t fp8_parameters(const Plan& plan, const Family& family, const TensorFiles& files);

/// The same of MXFP4.
std::int64_t mxfp4_parameters(const Plan& plan, const Family& family, const TensorFiles& files);

/// Counts what the files have in blocks of types that packing for bf16 keeps so on the device.
/// Throws as required_weights does.
PackedBlocks packed_blocks(const Plan& plan, const Family& family, const TensorFiles& files,
                           kernels::Device device = kernels::Device::cpu);

/// The share of the parameters of the plan's matrices that the files have as F16. Throws as
/// required_weights does.
double f16_share(const Plan& plan, const Family& family, const TensorFiles& files);

/// The required weights of a model, found in its files and checked. TensorFiles must outlive it.
class WeightIndex {
 public:
  /// Throws Error(model) for the first tensor that check_weights finds wrong, naming it and what is
  /// wrong, or for missing ones: the first and how many.
  WeightIndex(const Plan& plan, const Family& family, const TensorFiles& files);

  bool has(const WeightKey& key) const { return names_.contains(key); }

  /// The name in the files of a weight that is there.
  const std::string& name(const WeightKey& key) const;

  /// The bytes of a weight that is there; files.map() was called before.
  TensorView view(const WeightKey& key) const { return files_->view(name(key)); }

  /// Return what there is beside a weight that is there; nullptr: it has none.
  const StoredScales* scales(const WeightKey& key) const;
  const PublishedGroups* groups(const WeightKey& key) const;
  const TensorFiles& files() const { return *files_; }
  TensorView scales_view(const StoredScales& scales) const { return files_->view(scales.name); }

  /// Releases the physical pages of a weight that was packed.
  void drop(const WeightKey& key) const { files_->drop(name(key)); }

  /// Tensors in the files that neither the plan nor the family knows.
  const std::vector<std::string>& extra() const { return extra_; }

 private:
  const TensorFiles* files_;
  std::map<WeightKey, std::string> names_;
  std::map<WeightKey, StoredScales> scales_;
  std::map<WeightKey, PublishedGroups> groups_;
  std::vector<std::string> extra_;
};

}  // namespace hyb::models
