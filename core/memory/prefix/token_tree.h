#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// A radix tree over tokens, with a value of the user's at each node. The root is node 0 and has no
/// tokens.
template <typename Value>
class TokenTree {
 public:
  struct Node {
    std::int32_t parent = -1;
    std::int32_t depth = 0;     ///< tokens from the root to the end of the edge
    std::vector<TokenId> edge;  ///< from the parent
    std::map<TokenId, std::int32_t> children;
    Value value{};

    std::int32_t edge_length() const { return static_cast<std::int32_t>(edge.size()); }
  };

  /// Where a key leads.
  struct Match {
    std::vector<std::int32_t> path;  ///< nodes whose whole edge matches, without the root
    std::int32_t partial = -1;       ///< a node below the path whose edge matches in part
    std::int32_t tokens = 0;         ///< that match, the partial edge included

    std::int32_t last() const { return path.empty() ? 0 : path.back(); }
  };

  TokenTree() : nodes_(1) {}

  Node& operator[](std::int32_t node) { return nodes_[static_cast<std::size_t>(node)]; }
  const Node& operator[](std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
  bool is_leaf(std::int32_t node) const { return node != 0 && (*this)[node].children.empty(); }

  Match match(std::span<const TokenId> key) const {
    Match match;
    for (std::int32_t node = 0;;) {
      const auto rest = key.subspan(static_cast<std::size_t>(match.tokens));
      if (rest.empty()) return match;
      const auto found = (*this)[node].children.find(rest.front());
      if (found == (*this)[node].children.end()) return match;
      const std::vector<TokenId>& edge = (*this)[found->second].edge;
      std::size_t same = 0;
      while (same < edge.size() && same < rest.size() && edge[same] == rest[same]) ++same;
      match.tokens += static_cast<std::int32_t>(same);
      if (same < edge.size()) {
        match.partial = found->second;
        return match;
      }
      node = found->second;
      match.path.push_back(node);
    }
  }

  /// A node between `node` and its parent at `depth`, which lies inside the edge. Its value is
  /// default-made.
  std::int32_t split(std::int32_t node, std::int32_t depth) {
    const std::int32_t upper = take();
    Node& low = (*this)[node];
    Node& high = (*this)[upper];
    const auto cut = low.edge.begin() + (depth - (low.depth - low.edge_length()));
    high.parent = low.parent;
    high.depth = depth;
    high.edge.assign(low.edge.begin(), cut);
    low.edge.erase(low.edge.begin(), cut);
    (*this)[high.parent].children[high.edge.front()] = upper;
    high.children[low.edge.front()] = node;
    low.parent = upper;
    return upper;
  }

  /// A new leaf.
  std::int32_t append(std::int32_t parent, std::span<const TokenId> edge) {
    const std::int32_t leaf = take();
    Node& node = (*this)[leaf];
    node.parent = parent;
    node.depth = (*this)[parent].depth + static_cast<std::int32_t>(edge.size());
    node.edge.assign(edge.begin(), edge.end());
    (*this)[parent].children[edge.front()] = leaf;
    return leaf;
  }

  void remove_leaf(std::int32_t leaf) {
    (*this)[(*this)[leaf].parent].children.erase((*this)[leaf].edge.front());
    give_back(leaf);
  }

  /// The only child of `node` takes over its edge. Returns the child.
  std::int32_t merge_into_child(std::int32_t node) {
    const std::int32_t child = (*this)[node].children.begin()->second;
    Node& low = (*this)[child];
    Node& high = (*this)[node];
    high.edge.insert(high.edge.end(), low.edge.begin(), low.edge.end());
    low.edge = std::move(high.edge);
    low.parent = high.parent;
    (*this)[low.parent].children[low.edge.front()] = child;
    give_back(node);
    return child;
  }

 private:
  std::int32_t take() {
    if (free_.empty()) {
      nodes_.emplace_back();
      return static_cast<std::int32_t>(nodes_.size()) - 1;
    }
    const std::int32_t node = free_.back();
    free_.pop_back();
    return node;
  }

  void give_back(std::int32_t node) {
    (*this)[node] = Node();
    free_.push_back(node);
  }

  std::vector<Node> nodes_;
  std::vector<std::int32_t> free_;
};

}  // namespace hyb
