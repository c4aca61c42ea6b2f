#include "core/memory/prompt_plan.h"

#include <algorithm>
#include <cstddef>

#include "core/base/error.h"

namespace hyb {
namespace {

using Depths = std::vector<std::int32_t>;

/// Per prompt, the depths of the nodes with two descendants or more of which it is the first; the
/// deepest first. A node is an interval of prompts: it ends where less is in common.
std::vector<Depths> nodes_begun(std::span<const std::int32_t> common) {
  struct Node {
    std::size_t begin;
    std::int32_t depth;
  };
  std::vector<Depths> begun(common.size());
  std::vector<Node> open;
  for (std::size_t i = 1; i <= common.size(); ++i) {
    const std::int32_t depth = i < common.size() ? common[i] : 0;
    std::size_t begin = i - 1;
    while (!open.empty() && open.back().depth > depth) {
      begin = open.back().begin;
      begun[begin].push_back(open.back().depth);
      open.pop_back();
    }
    if (depth > 0 && (open.empty() || open.back().depth < depth)) open.push_back({begin, depth});
  }
  return begun;
}

/// Of nodes in ascending order, where a prompt of this length is to be cut.
Depths cuts_at(std::span<const std::int32_t> nodes, std::int32_t length) {
  Depths cuts;
  std::int32_t last = 0;
  for (const std::int32_t depth : nodes) {
    const std::int32_t cut = std::min(depth, length - 1);
    if (cut - last < cut_tokens_min) continue;
    cuts.push_back(cut);
    last = cut;
  }
  return cuts;
}

}  // namespace

std::vector<PromptPlan> plan_depth_first(std::span<const std::int32_t> lengths,
                                         std::span<const std::int32_t> common) {
  require(lengths.size() == common.size() && (common.empty() || common[0] == 0),
          "prompt plan: every prompt has its length and what it shares with the one before");
  constexpr std::size_t known_nodes_max = 8;
  const std::vector<Depths> begun = nodes_begun(common);
  std::vector<PromptPlan> plans;
  Depths way;  // nodes that the prompt at hand and a later one pass
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int32_t needed_later = i + 1 < common.size() ? common[i + 1] : 0;
    while (!way.empty() && way.back() > std::min(common[i], needed_later)) way.pop_back();
    const std::size_t known = std::min(way.size(), known_nodes_max);
    way.insert(way.end(), begun[i].rbegin(), begun[i].rend());
    const auto nodes = std::span(way).last(known + begun[i].size());
    plans.push_back({.cuts = cuts_at(nodes, lengths[i]), .needed_later = needed_later});
  }
  return plans;
}

}  // namespace hyb
