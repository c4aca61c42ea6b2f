#include "core/memory/prefix/prefix_tree.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb {

namespace {

/// Any snapshot at the node or below.
Snapshot* any_below(const PrefixNode* node) {
  while (node != nullptr && node->value == nullptr) node = node->children.any();
  return node == nullptr ? nullptr : node->value.get();
}

/// The shallowest snapshot at the node or below, among the first 1024 nodes visited. Of all below
/// it holds the most pages on the path to the node: kinds only drop pages as a sequence grows.
Snapshot* nearest_below(const PrefixNode* top) {
  if (top->value != nullptr) return top->value.get();
  constexpr std::size_t nodes_max = 1024;
  std::vector<const PrefixNode*> nodes{top};
  const PrefixNode* nearest = nullptr;
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    nodes[at]->children.for_each([&](TokenId, const PrefixNode* child) {
      if (nearest != nullptr && child->depth >= nearest->depth) return;
      if (child->value != nullptr) {
        nearest = child;
      } else if (nodes.size() < nodes_max) {
        nodes.push_back(child);
      }
    });
  }
  return nearest == nullptr ? any_below(top) : nearest->value.get();
}

Snapshot* nearest_above(const PrefixNode* node) {
  for (node = node->parent; node != nullptr; node = node->parent) {
    if (node->value != nullptr) return node->value.get();
  }
  return nullptr;
}

/// Adds what a node has in common with others, without its descendants.
void share_with_parent(Neighborhood& neighborhood, const PrefixNode* node) {
  const PrefixNode* const parent = node->parent;
  neighborhood.shared = parent->depth;
  neighborhood.other =
      parent->value != nullptr ? parent->value.get() : any_below(parent->children.any(node));
}

}  // namespace

Lookup PrefixTree::look_up(std::span<const TokenId> key, std::int32_t limit,
                           const MemoryLayout& layout) const {
  const SnapshotTree::Walk found = tree_.walk(key);
  Lookup lookup{.matched = found.tokens};
  const bool only_own_length = layout.has_slots();
  for (const PrefixNode* node = found.node; node->parent != nullptr; node = node->parent) {
    // This is what all snapshots at the node and below have in common with the key.
    const std::int32_t common = std::min({node->depth, found.tokens, limit});
    if (common <= lookup.resumable) break;
    if (common <= node->parent->depth) continue;
    if (only_own_length) {
      if (node->value == nullptr || node->depth > common) continue;
      lookup.snapshot = node->value.get();
      lookup.resumable = common;
      break;
    }
    for (Snapshot* const snapshot : {any_below(node), nearest_below(node)}) {
      const std::int32_t length = snapshot->checkpoint.resumable_length(common);
      if (length > lookup.resumable) {
        lookup.snapshot = snapshot;
        lookup.resumable = length;
      }
      if (length == common) break;
    }
  }
  if (lookup.snapshot != nullptr) lookup.source = lookup.snapshot->source;
  return lookup;
}

Neighborhood PrefixTree::neighborhood(std::span<const TokenId> key) const {
  const SnapshotTree::Walk found = tree_.walk(key);
  const auto depth = static_cast<std::int32_t>(key.size());
  const PrefixNode* const node = found.node;
  if (node->depth == depth && found.tokens == depth && node->value != nullptr) {
    return neighborhood(*node->value);
  }
  Neighborhood neighborhood{.depth = depth, .shared = found.tokens, .other = any_below(node)};
  const bool whole = node->depth == found.tokens;  // the edge is on the way to the end of its node
  neighborhood.above = whole && node->value != nullptr ? node->value.get() : nearest_above(node);
  return neighborhood;
}

std::vector<TokenId> PrefixTree::continuation(std::span<const TokenId> key,
                                              std::int32_t most) const {
  const SnapshotTree::Walk found = tree_.walk(key);
  std::vector<TokenId> tokens;
  const PrefixNode* node = found.node;
  auto from = node->edge.begin() + (node->edge_length() - (node->depth - found.tokens));
  while (node != nullptr) {
    const std::ptrdiff_t room = most - std::ssize(tokens);
    tokens.insert(tokens.end(), from, from + std::min(room, node->edge.end() - from));
    node = node->children.any();
    if (node != nullptr) from = node->edge.begin();
  }
  return tokens;
}

Neighborhood PrefixTree::neighborhood(const Snapshot& snapshot) const {
  const PrefixNode* const node = snapshot.node;
  Neighborhood neighborhood{
      .depth = node->depth, .above = nearest_above(node), .here = node->value.get()};
  if (!node->children.empty()) {
    neighborhood.shared = node->depth;
    neighborhood.other = any_below(node->children.any());
    return neighborhood;
  }
  share_with_parent(neighborhood, node);
  return neighborhood;
}

Neighborhood PrefixTree::without_above(const Neighborhood& neighborhood) const {
  const PrefixNode* const above = neighborhood.above->node;
  Neighborhood without = neighborhood;
  without.above = nearest_above(above);
  if (neighborhood.shared > above->depth) return without;
  const PrefixNode* const own = neighborhood.here == nullptr ? nullptr : neighborhood.here->node;
  const PrefixNode* const beside = above->children.any(own);
  if (beside == nullptr) {
    share_with_parent(without, above);
  } else {
    without.other = any_below(beside);
  }
  return without;
}

Snapshot* PrefixTree::insert(std::span<const TokenId> key, Checkpoint checkpoint,
                             SnapshotPlace place) {
  require(!key.empty() && checkpoint.length() == static_cast<std::int32_t>(key.size()),
          "prefix tree: the key has the tokens of the checkpoint");
  const SnapshotTree::Walk found = tree_.walk(key);
  PrefixNode* node = tree_.split(found);
  const auto rest = key.subspan(static_cast<std::size_t>(found.tokens));
  if (!rest.empty()) node = tree_.append(node, rest);
  if (node->value != nullptr) return nullptr;
  node->value = std::make_unique<Snapshot>();
  node->value->checkpoint = std::move(checkpoint);
  node->value->place = place;
  node->value->node = node;
  ++size_;
  return node->value.get();
}

Checkpoint PrefixTree::erase(Snapshot& snapshot) {
  PrefixNode* node = snapshot.node;
  require(node != nullptr && node->value.get() == &snapshot,
          "prefix tree: a snapshot of this tree is erased once");
  Checkpoint checkpoint = std::move(snapshot.checkpoint);
  node->value.reset();
  --size_;
  if (node->children.empty()) {
    PrefixNode* const parent = node->parent;
    tree_.remove_leaf(node);
    node = parent;
  }
  if (node->parent != nullptr && node->value == nullptr && node->children.size() == 1) {
    tree_.merge_into_child(node);
  }
  return checkpoint;
}

std::vector<TokenId> PrefixTree::key(const Snapshot& snapshot) {
  std::vector<TokenId> key(static_cast<std::size_t>(snapshot.node->depth));
  for (const PrefixNode* node = snapshot.node; node->parent != nullptr; node = node->parent) {
    std::copy(node->edge.begin(), node->edge.end(), key.begin() + node->parent->depth);
  }
  return key;
}

std::vector<Snapshot*> PrefixTree::on_the_way(std::span<const TokenId> key) const {
  const SnapshotTree::Walk found = tree_.walk(key);
  std::vector<Snapshot*> snapshots;
  for (const PrefixNode* node = found.node; node->parent != nullptr; node = node->parent) {
    if (node->value != nullptr && node->depth <= found.tokens) {
      snapshots.push_back(node->value.get());
    }
  }
  std::reverse(snapshots.begin(), snapshots.end());
  return snapshots;
}

std::vector<Snapshot*> PrefixTree::snapshots() const {
  std::vector<Snapshot*> snapshots;
  tree_.for_each_value([&](const std::unique_ptr<Snapshot>& snapshot) {
    if (snapshot != nullptr) snapshots.push_back(snapshot.get());
  });
  return snapshots;
}

void PrefixTree::audit() const {
  tree_.audit();
  std::int32_t snapshots = 0;
  tree_.for_each_node([&](const PrefixNode& node) {
    if (node.parent == nullptr) return;
    require(node.value != nullptr || node.children.size() >= 2,
            "prefix tree: every node has a reason");
    if (node.value == nullptr) return;
    ++snapshots;
    require(node.value->node == &node && node.value->checkpoint.length() == node.depth,
            "prefix tree: a snapshot is where its checkpoint ends");
  });
  require(snapshots == size_, "prefix tree: snapshots are counted");
}

}  // namespace hyb
