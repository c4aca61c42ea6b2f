#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hyb {

/// What a prompt is to leave behind when all prompts are known before the first one runs.
struct PromptPlan {
  /// Snapshots that later prompts will use: ascending, above 0 and below the prompt's length. Each
  /// prompt of a group names them, so that a later one makes up for what could not be kept.
  std::vector<std::int32_t> cuts;
  /// So many of its tokens begin a later prompt, too: snapshots behind them are of no use any more.
  std::int32_t needed_later = 0;
};

/// Cuts are at least so far apart: a snapshot for fewer tokens costs more than it saves.
inline constexpr std::int32_t cut_tokens_min = 16;

/// Plans prompts that stand in the order of a depth-first walk of their radix tree, in which they
/// will run. `lengths`: their tokens; common[i]: tokens that prompt i has in common with the one
/// before, common[0] is 0. A prompt is cut at the nodes on its way that later prompts pass too; of
/// those that are not new, at the deepest eight.
std::vector<PromptPlan> plan_depth_first(std::span<const std::int32_t> lengths,
                                         std::span<const std::int32_t> common);

}  // namespace hyb
