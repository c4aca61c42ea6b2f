#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/ids.h"

namespace hyb {

/// The children of a tree node, by the first token of their edges. Two lie in the node itself, so
/// that walking down a line of turns costs no cache miss for them; more go to one hash table.
template <typename Node>
class TokenChildren {
 public:
  std::int32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  /// Null: there is none.
  Node* find(TokenId first) const {
    if (table_.empty()) {
      for (const Entry& entry : inline_) {
        if (entry.first == first && entry.node != nullptr) return entry.node;
      }
      return nullptr;
    }
    for (std::size_t at = home(first);; at = next(at)) {
      const Entry& entry = table_[at];
      if (entry.node == nullptr || entry.first == first) return entry.node;
    }
  }

  /// There is no child with this token yet.
  void insert(TokenId first, Node* node) {
    if (table_.empty() && size_ == static_cast<std::int32_t>(inline_.size())) resize(8);
    if (!table_.empty() && 2 * (static_cast<std::size_t>(size_) + 1) > table_.size()) {
      resize(2 * table_.size());
    }
    Entry* const entry = place(first);
    require(entry != nullptr && entry->node == nullptr, "token tree: one child per first token");
    *entry = {first, node};
    ++size_;
  }

  /// There is a child with this token; `node` takes its place.
  void replace(TokenId first, Node* node) {
    Entry* const entry = place(first);
    require(entry != nullptr && entry->node != nullptr, "token tree: a child to replace");
    entry->node = node;
  }

  /// There is a child with this token.
  void erase(TokenId first) {
    Entry* const entry = place(first);
    require(entry != nullptr && entry->node != nullptr, "token tree: a child to erase");
    *entry = {};
    --size_;
    if (table_.empty()) return;
    close_gap(static_cast<std::size_t>(entry - table_.data()));
    if (size_ == 1) {
      resize(0);
    } else if (static_cast<std::size_t>(size_) * 8 < table_.size() && table_.size() > 8) {
      resize(table_.size() / 2);
    }
  }

  /// Any child except `other`; null: there is none.
  Node* any(const Node* other = nullptr) const {
    for (const Entry& entry : entries()) {
      if (entry.node != nullptr && entry.node != other) return entry.node;
    }
    return nullptr;
  }

  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const Entry& entry : entries()) {
      if (entry.node != nullptr) visit(entry.first, entry.node);
    }
  }

 private:
  struct Entry {
    TokenId first{};
    Node* node = nullptr;  ///< null: the entry is free
  };

  std::span<const Entry> entries() const {
    return table_.empty() ? std::span<const Entry>(inline_) : std::span<const Entry>(table_);
  }
  std::size_t next(std::size_t at) const { return (at + 1) & (table_.size() - 1); }

  std::size_t home(TokenId first) const {
    // Multiplication by 2^32 / golden ratio spreads neighbouring tokens; the upper bits are used.
    const std::uint32_t spread = static_cast<std::uint32_t>(index(first)) * 2654435769U;
    return (spread >> 7) & (table_.size() - 1);
  }

  /// The entry of the token, else the free entry where it belongs; null: `inline_` is full.
  Entry* place(TokenId first) {
    if (table_.empty()) {
      Entry* free = nullptr;
      for (Entry& entry : inline_) {
        if (entry.node == nullptr) {
          free = &entry;
        } else if (entry.first == first) {
          return &entry;
        }
      }
      return free;
    }
    std::size_t at = home(first);
    while (table_[at].node != nullptr && table_[at].first != first) at = next(at);
    return &table_[at];
  }

  /// Entries after the gap that probing would no longer reach move up into it.
  void close_gap(std::size_t gap) {
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = next(gap); table_[at].node != nullptr; at = next(at)) {
      const std::size_t from = home(table_[at].first);
      if (((at - from) & mask) < ((at - gap) & mask)) continue;
      table_[gap] = std::exchange(table_[at], {});
      gap = at;
    }
  }

  /// 0 entries: back to `inline_`.
  void resize(std::size_t count) {
    std::vector<Entry> entries(count);
    std::swap(table_, entries);
    if (entries.empty()) entries.assign(inline_.begin(), inline_.end());
    inline_ = {};
    for (const Entry& entry : entries) {
      if (entry.node != nullptr) *place(entry.first) = entry;
    }
  }

  std::array<Entry, 2> inline_;
  std::vector<Entry> table_;  ///< linear probing; a power of two, at most half full; empty: inline_
  std::int32_t size_ = 0;
};

/// A radix tree over tokens, with a value in each node. Token ids are compared on every walk;
/// nothing is hashed but the first token of an edge. A node keeps its address and id until it is
/// removed; ids are reused, the last freed one first.
template <typename Value>
class TokenTree {
 public:
  struct alignas(64) Node {
    std::vector<TokenId> edge;  ///< from the parent
    std::int32_t depth = 0;     ///< tokens from the root to the end of the edge
    std::int32_t id = 0;        ///< 0: the root
    Node* parent = nullptr;     ///< null: the root
    Value value{};
    TokenChildren<Node> children;
    /// Points to where the last walk through this node was `nodes_ahead` nodes further. Walks
    /// prefetch it and never read it: it may be another path's by now.
    const Node* ahead = nullptr;

    std::int32_t edge_length() const { return static_cast<std::int32_t>(edge.size()); }
    bool is_leaf() const { return parent != nullptr && children.empty(); }
  };

  /// Says where a key leads: `tokens` of it are in the tree, the last of them on the edge of
  /// `node`.
  struct Walk {
    Node* node;
    std::int32_t tokens;

    /// The key leaves the edge before its end.
    bool is_partial() const { return tokens < node->depth; }
    /// The deepest node whose whole edge matches.
    Node* last() const { return is_partial() ? node->parent : node; }
  };

  TokenTree() : nodes_(1) {}
  TokenTree(const TokenTree&) = delete;
  TokenTree& operator=(const TokenTree&) = delete;

  Node* root() { return &nodes_.front(); }
  const Node* root() const { return &nodes_.front(); }
  Node* node(std::int32_t id) { return &nodes_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return nodes_.size() - free_.size(); }  ///< nodes, the root included

  /// Leaves prefetch hints in the nodes: one thread at a time.
  Walk walk(std::span<const TokenId> key) const {
    // First down by the first tokens of edges alone, which asks for the edges' memory early, then
    // the comparison of all tokens. With caches cold each child would be a cache miss that waits
    // for the one of its parent; prefetching the node that an earlier walk found further down
    // overlaps them.
    std::vector<Node*> path;
    path.reserve(64);
    const std::size_t length = key.size();
    std::size_t asked = 0;  // tokens of the key that were prefetched
    const Node* node = root();
    for (std::size_t depth = 0; depth < length;) {
      Node* const child = node->children.find(key[depth]);
      if (child == nullptr) break;
      prefetch(child);
      if (child->ahead != nullptr) prefetch(child->ahead);
      for (; asked < std::min(length, depth + key_ahead); asked += line_tokens) {
        __builtin_prefetch(&key[asked]);
      }
      path.push_back(child);
      prefetch(child->edge);
      node = child;
      depth = static_cast<std::size_t>(node->depth);
    }
    for (std::size_t at = nodes_ahead; at < path.size(); ++at) {
      path[at - nodes_ahead]->ahead = path[at];
    }
    Walk walk{const_cast<Node*>(root()), 0};
    for (Node* const step : path) {
      const auto rest = key.subspan(static_cast<std::size_t>(walk.tokens));
      const std::size_t tokens = std::min(rest.size(), step->edge.size());
      const std::int32_t equal =
          equal_tokens(rest.first(tokens), std::span(step->edge).first(tokens));
      walk = {step, walk.tokens + equal};
      if (equal < step->edge_length()) break;
    }
    return walk;
  }

  /// The nodes from below the root down to `node`.
  static std::vector<Node*> path_to(Node* node) {
    std::vector<Node*> path;
    for (; node->parent != nullptr; node = node->parent) path.push_back(node);
    std::reverse(path.begin(), path.end());
    return path;
  }

  /// The node where a walk of this tree ended: a new one above `walk.node` where it ended on an
  /// edge. The value of a new node is default-constructed.
  Node* split(const Walk& walk) {
    if (!walk.is_partial()) return walk.node;
    Node* const lower = walk.node;
    Node* const upper = take();
    Node* const parent = lower->parent;
    const auto cut = lower->edge.begin() + (walk.tokens - parent->depth);
    upper->edge.assign(lower->edge.begin(), cut);
    upper->depth = walk.tokens;
    upper->parent = parent;
    parent->children.replace(upper->edge.front(), upper);
    lower->edge = std::vector<TokenId>(cut, lower->edge.end());
    lower->parent = upper;
    upper->children.insert(lower->edge.front(), lower);
    return upper;
  }

  /// A new leaf.
  Node* append(Node* parent, std::span<const TokenId> edge) {
    Node* const leaf = take();
    leaf->edge.assign(edge.begin(), edge.end());
    leaf->depth = parent->depth + static_cast<std::int32_t>(edge.size());
    leaf->parent = parent;
    parent->children.insert(edge.front(), leaf);
    return leaf;
  }

  void remove_leaf(Node* leaf) {
    leaf->parent->children.erase(leaf->edge.front());
    release(leaf);
  }

  /// The only child of `node` takes over its edge. Returns the child.
  Node* merge_into_child(Node* node) {
    Node* const child = node->children.any();
    node->edge.insert(node->edge.end(), child->edge.begin(), child->edge.end());
    child->edge = std::move(node->edge);
    child->parent = node->parent;
    node->parent->children.replace(child->edge.front(), child);
    release(node);
    return child;
  }

  /// Visits the value of every node, and default-constructed values, in order of ids.
  template <typename Visit>
  void for_each_value(const Visit& visit) const {
    for (const Node& node : nodes_) visit(node.value);
  }

  /// Visits every node, parents before their children.
  template <typename Visit>
  void for_each_node(const Visit& visit) const {
    std::vector<const Node*> open{root()};
    while (!open.empty()) {
      const Node* const node = open.back();
      open.pop_back();
      visit(*node);
      node->children.for_each([&](TokenId, const Node* child) { open.push_back(child); });
    }
  }

  /// Throws when depths, parents, edges or counts are not what they should be.
  void audit() const {
    std::size_t nodes = 0;
    for_each_node([&](const Node& node) {
      ++nodes;
      std::int32_t children = 0;
      node.children.for_each([&](TokenId first, const Node* child) {
        require(child->edge_length() > 0 && child->edge.front() == first,
                "token tree: edges by first token");
        require(child->parent == &node && child->depth == node.depth + child->edge_length(),
                "token tree: a child starts where its parent ends");
        ++children;
      });
      require(children == node.children.size(), "token tree: children are counted");
    });
    require(nodes == size(), "token tree: nodes are counted");
  }

 private:
  static constexpr std::size_t line_bytes = 64;
  static constexpr std::size_t key_ahead = 256;  ///< tokens: measured best with caches cold
  static constexpr std::size_t nodes_ahead = 8;
  static constexpr std::size_t line_tokens = line_bytes / sizeof(TokenId);

  static void prefetch(const Node* node) {
    for (std::size_t byte = 0; byte < sizeof(Node); byte += line_bytes) {
      __builtin_prefetch(reinterpret_cast<const char*>(node) + byte);
    }
  }

  /// The start of an edge or key; the rest follows when it is read.
  static void prefetch(std::span<const TokenId> tokens) {
    constexpr std::size_t lines_max = 8;
    const std::size_t count = std::min(tokens.size(), lines_max * line_tokens);
    for (std::size_t token = 0; token < count; token += line_tokens) {
      __builtin_prefetch(&tokens[token]);
    }
  }

  /// Returns how many tokens at the front of two runs of equal length are equal.
  static std::int32_t equal_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
    if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) {
      return static_cast<std::int32_t>(a.size());
    }
    return static_cast<std::int32_t>(std::mismatch(a.begin(), a.end(), b.begin()).first -
                                     a.begin());
  }

  Node* take() {
    if (free_.empty()) {
      Node* const node = &nodes_.emplace_back();
      node->id = static_cast<std::int32_t>(nodes_.size()) - 1;
      return node;
    }
    Node* const node = free_.back();
    free_.pop_back();
    return node;
  }

  void release(Node* node) {
    const std::int32_t id = node->id;
    *node = Node();
    node->id = id;
    free_.push_back(node);
  }

  std::deque<Node> nodes_;  ///< those in use and the free ones
  std::vector<Node*> free_;
};

}  // namespace hyb
