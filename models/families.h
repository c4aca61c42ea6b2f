#pragma once

#include <span>
#include <string_view>

#include "models/config.h"
#include "models/plan.h"

namespace hyb::models {

/// One tensor of a family: the role the walker asks for and the name in the published files.
/// `{}` in the name stands for the layer index.
struct TensorName {
  std::string_view role;  ///< "embed", "final_norm", "head", "block0.norm", "ssd.in_proj", ...
  std::string_view name;
};

/// A family: config.json -> Plan, and where its tensors are found. One file in families/ each.
struct Family {
  std::span<const std::string_view> model_types;
  Plan (*plan)(const Config&);
  std::span<const TensorName> names;
  bool runs;  ///< false: plan, inspect and fit only; running it comes later
};

/// Every family hyb knows, sorted by name.
std::span<const Family* const> families();

/// The family of config's model_type. Throws Error(model) that lists the known ones.
const Family& family_of(const Config& config);

}  // namespace hyb::models
