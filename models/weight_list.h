#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
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

/// Every tensor the plan needs, in layer order. The head is not listed when it is tied. Of two
/// layouts that the family names it is the one that `files` have, or without files the first named.
/// Throws Error(model) when the plan asks for more than 1,000,000 tensors or 2^60 parameters.
std::vector<RequiredWeight> required_weights(const Plan& plan, const Family& family,
                                             const TensorFiles* files = nullptr);

/// The role of a tensor in any layer and expert, by its name alone; "" for none of the family's.
std::string_view role_of(const Family& family, std::string_view name);

/// Number of parameters; a tied head counts once.
std::int64_t parameters(const std::vector<RequiredWeight>& weights);

}  // namespace hyb::models
