#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "models/plan.h"

namespace hyb::app {

/// Layers that have a part of the same kind and size, and how to say what it is.
struct PartGroup {
  std::string kind;  ///< "attention", "ssd", "delta", "mlp", "moe"
  std::string text;  ///< "12 heads x 128, 4 kv heads"
  std::vector<std::int32_t> layers;
};

/// In the order of first appearance.
std::vector<PartGroup> part_groups(const models::Plan& plan);

/// "0-4, 6, 8-9".
std::string runs_text(const std::vector<std::int32_t>& numbers);

/// How many layers hold a part of each kind: {"attention": 4, "ssd": 36, ...}.
Json layer_counts(const models::Plan& plan);

}  // namespace hyb::app
