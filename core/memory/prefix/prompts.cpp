#include "core/memory/prefix/prompts.h"

#include <algorithm>
#include <cstddef>

#include "core/base/error.h"

namespace hyb {

std::int32_t PromptHistory::branch_of(const Tree::Walk& walk, std::size_t length) {
  if (walk.tokens == static_cast<std::int32_t>(length)) return 0;
  if (!walk.is_partial() && walk.node->value.is_end) return 0;
  return walk.tokens;
}

/// The leaf, which may be new, was seen at this time.
void PromptHistory::set_time(Tree::Node* leaf, std::int64_t time) {
  leaf_ages_.erase({leaf->value.time, leaf->id});
  leaf->value.time = time;
  leaf_ages_.emplace(time, leaf->id);
}

std::int32_t PromptHistory::remember(std::span<const TokenId> prompt, std::size_t endings_max) {
  if (prompt.empty()) return 0;
  const Tree::Walk walk = tree_.walk(prompt);
  const std::int32_t branch = branch_of(walk, prompt.size());
  if (static_cast<std::int64_t>(prompt.size()) > tokens_max_) return branch;
  Tree::Node* node = tree_.split(walk);
  const auto more = prompt.subspan(static_cast<std::size_t>(walk.tokens));
  if (!more.empty()) {
    leaf_ages_.erase({node->value.time, node->id});  // it may have been a leaf
    node = tree_.append(node, more);
    tokens_ += static_cast<std::int64_t>(more.size());
  }
  node->value.is_end = true;
  if (node->is_leaf()) set_time(node, ++now_);
  while (tokens_ > tokens_max_ || leaf_ages_.size() > endings_max) forget_oldest();
  return branch;
}

void PromptHistory::forget_oldest() {
  const auto [time, id] = *leaf_ages_.begin();
  leaf_ages_.erase(leaf_ages_.begin());
  Tree::Node* const leaf = tree_.node(id);
  Tree::Node* const parent = leaf->parent;
  tokens_ -= leaf->edge_length();
  tree_.remove_leaf(leaf);
  if (parent == tree_.root()) return;
  if (parent->is_leaf()) {
    set_time(parent, time);  // a prompt ended there that the forgotten ones continued
  } else if (parent->children.size() == 1 && !parent->value.is_end) {
    tree_.merge_into_child(parent);
  }
}

namespace {

using Depths = std::vector<std::int32_t>;

/// Per prompt, the depths of the nodes with two or more descendants of which it is the first; the
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

/// Returns where a prompt of this length is cut, from the depths of nodes in ascending order.
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
