#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/memory/prefix/token_tree.h"

namespace hyb {

/// The tokens of the last prompts, without pages or snapshots. They outlive those in the prefix
/// tree: the second prompt of a group shows where the group branches even when all snapshots of the
/// first were evicted in between.
class PromptHistory {
 public:
  /// A prompt of more tokens is not remembered.
  explicit PromptHistory(std::int64_t tokens_max) : tokens_max_(tokens_max) {}

  /// Remembers the prompt. Returns the number of leading tokens that it shares with an earlier
  /// prompt that then differs; 0: there is none, or a prompt ended exactly there, so that this is a
  /// conversation that continues and not a branch. The least recently seen endings are dropped when
  /// there are more than `endings_max` (1 or more), or more than `tokens_max` tokens.
  std::int32_t remember(std::span<const TokenId> prompt, std::size_t endings_max);

  /// Equal prefixes count once.
  std::int64_t tokens() const { return tokens_; }

 private:
  struct Seen {
    bool is_end = false;    ///< of a prompt
    std::int64_t time = 0;  ///< of a leaf: when it was seen last
  };
  using Tree = TokenTree<Seen>;

  static std::int32_t branch_of(const Tree::Walk& walk, std::size_t length);
  void set_time(Tree::Node* leaf, std::int64_t time);
  void forget_oldest();

  std::int64_t tokens_max_;
  std::int64_t tokens_ = 0;
  std::int64_t now_ = 0;
  Tree tree_;
  std::set<std::pair<std::int64_t, std::int32_t>> leaf_ages_;  ///< time, id of the leaf
};

/// Says which snapshots a prompt leaves when all prompts are known before the first one runs.
struct PromptPlan {
  /// Snapshots that later prompts will use: ascending, above 0 and below the prompt's length. Each
  /// prompt of a group has them, so that a later one can make up for one that was not kept.
  std::vector<std::int32_t> cuts;
  /// Number of its tokens that a later prompt starts with, too: snapshots after them are not needed
  /// any more.
  std::int32_t needed_later = 0;
};

/// The least distance of two cuts: a snapshot for fewer tokens costs more than it saves.
inline constexpr std::int32_t cut_tokens_min = 16;

/// Plans prompts that run in the order of a depth-first walk of their radix tree. `lengths`: their
/// tokens; common[i]: tokens that prompt i has in common with the one before, common[0] is 0. A
/// prompt is cut at the nodes on its path that later prompts pass too; of those that are not new,
/// at the deepest eight.
std::vector<PromptPlan> plan_depth_first(std::span<const std::int32_t> lengths,
                                         std::span<const std::int32_t> common);

}  // namespace hyb
