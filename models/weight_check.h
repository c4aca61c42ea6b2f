#pragma once

#include <cstdint>
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

/// The scales of a weight that is stored as F8_E4M3.
struct StoredScales {
  std::string name;                      ///< of their tensor
  std::int64_t row_block, column_block;  ///< of a matrix; each expert's begins with a new block
  std::int64_t per_expert;               ///< how many
};

/// How scales lie, by the shapes of both; none: they are not this weight's.
std::optional<StoredScales> scales_layout(const TensorInfo& scales, const TensorInfo& weight);

/// unused: known, and of no use to hyb; extra: not known.
enum class TensorVerdict : std::uint8_t { right, missing, wrong, unused, extra };

/// A tensor held against a plan.
struct CheckedTensor {
  TensorVerdict verdict;
  const TensorInfo* stored;  ///< in the files; nullptr: missing
  std::string fault = {};    ///< of a wrong one: "config.json asks for [8]"
};

struct CheckedWeight {
  RequiredWeight weight;
  CheckedTensor tensor;
  std::optional<CheckedTensor> scale_tensor = {};  ///< where F8_E4M3 has one
  std::optional<StoredScales> scales = {};         ///< where that is right
};

/// What decides whether a model can be loaded, for the loader and for all who tell before. The
/// files outlive it.
struct WeightCheck {
  std::vector<CheckedWeight> weights;  ///< of the plan, in its order
  std::vector<CheckedTensor> others;   ///< what else is in the files
};

/// Right is a weight of the plan's shape in BF16, F16 or F32; a matrix in F8_E4M3, too, with scales
/// in P_scale ([], [1]: of all; [out], [out, 1]: of rows) or P_scale_inv (of blocks of 128 x 128),
/// P being the weight's name. Experts in one tensor have theirs behind a first dimension. Wrong is
/// also what the family would name so, had the plan a place for it. Throws Error(model) as
/// required_weights does.
WeightCheck check_weights(const Plan& plan, const Family& family, const TensorFiles& files);

/// The plan's parameters that the files have as F8_E4M3. Throws as required_weights does.
std::int64_t fp8_parameters(const Plan& plan, const Family& family, const TensorFiles& files);

}  // namespace hyb::models
