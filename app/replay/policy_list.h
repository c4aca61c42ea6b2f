#pragma once

#include <string>
#include <vector>

#include "core/replay/cache_policy.h"

namespace hyb::app {

/// What was asked for on the command line; lists are separated by commas.
struct PolicyLists {
  std::vector<std::string> policies;
  std::vector<std::string> snapshots;
  std::vector<std::string> budgets;
  std::vector<double> ratios;
  std::int32_t block_tokens = 32;
  std::string sglang_states;  ///< turn-end or both
};

/// Every combination: budgets outermost, then policies as listed (`all`: every one), their ratios
/// and snapshots. Options that a policy does not have are not varied for it: only sglang has a
/// ratio, none and bound have neither snapshots nor (bound) a budget.
/// Throws Error(usage) naming what is unknown or out of range.
std::vector<PolicyOptions> policy_options(const PolicyLists& lists);

/// The policy with the options that tell it from others: "sglang 0.9 int8".
std::string label_of(const PolicyOptions& options);

}  // namespace hyb::app
