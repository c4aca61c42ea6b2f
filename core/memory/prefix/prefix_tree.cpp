#include "core/memory/prefix/prefix_tree.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb {

std::size_t ChildNodes::home(TokenId first) const {
  // Multiplication by 2^32 / golden ratio spreads neighbouring tokens; its upper bits count.
  const std::uint32_t spread = static_cast<std::uint32_t>(index(first)) * 2654435769U;
  return (spread >> 7) & (table_.size() - 1);
}

PrefixNode* ChildNodes::find(TokenId first) const {
  if (table_.empty()) {
    for (const Entry& entry : few_) {
      if (entry.first == first && entry.node != nullptr) return entry.node;
    }
    return nullptr;
  }
  for (std::size_t at = home(first);; at = (at + 1) & (table_.size() - 1)) {
    const Entry& entry = table_[at];
    if (entry.node == nullptr || entry.first == first) return entry.node;
  }
}

/// Where the token is, else the free place where it belongs; null: `few_` is full.
ChildNodes::Entry* ChildNodes::place(TokenId first) {
  if (table_.empty()) {
    Entry* free = nullptr;
    for (Entry& entry : few_) {
      if (entry.node == nullptr) {
        free = &entry;
      } else if (entry.first == first) {
        return &entry;
      }
    }
    return free;
  }
  std::size_t at = home(first);
  while (table_[at].node != nullptr && table_[at].first != first) {
    at = (at + 1) & (table_.size() - 1);
  }
  return &table_[at];
}

/// Back to `few_` when `places` is 0.
void ChildNodes::resize(std::size_t places) {
  std::vector<Entry> entries(places);
  std::swap(table_, entries);
  if (entries.empty()) entries.assign(few_.begin(), few_.end());
  few_ = {};
  for (const Entry& entry : entries) {
    if (entry.node != nullptr) *place(entry.first) = entry;
  }
}

void ChildNodes::insert(TokenId first, PrefixNode* node) {
  if (table_.empty() && size_ == static_cast<std::int32_t>(few_.size())) resize(8);
  if (!table_.empty() && 2 * (static_cast<std::size_t>(size_) + 1) > table_.size()) {
    resize(2 * table_.size());
  }
  Entry* entry = place(first);
  require(entry != nullptr && entry->node == nullptr, "prefix tree: one child per first token");
  *entry = {first, node};
  ++size_;
}

void ChildNodes::replace(TokenId first, PrefixNode* node) {
  Entry* entry = place(first);
  require(entry != nullptr && entry->node != nullptr, "prefix tree: a child to replace");
  entry->node = node;
}

void ChildNodes::erase(TokenId first) {
  Entry* entry = place(first);
  require(entry != nullptr && entry->node != nullptr, "prefix tree: a child to erase");
  *entry = {};
  --size_;
  if (table_.empty()) return;

  // Entries behind the gap that probing would no longer reach move up into it.
  const std::size_t mask = table_.size() - 1;
  auto gap = static_cast<std::size_t>(entry - table_.data());
  for (std::size_t at = (gap + 1) & mask; table_[at].node != nullptr; at = (at + 1) & mask) {
    const std::size_t from = home(table_[at].first);
    if (((at - from) & mask) < ((at - gap) & mask)) continue;
    table_[gap] = std::exchange(table_[at], {});
    gap = at;
  }
  if (size_ == 1) {
    resize(0);
  } else if (static_cast<std::size_t>(size_) * 8 < table_.size() && table_.size() > 8) {
    resize(table_.size() / 2);
  }
}

PrefixNode* ChildNodes::any(const PrefixNode* other) const {
  const auto found = std::find_if(entries().begin(), entries().end(), [&](const Entry& entry) {
    return entry.node != nullptr && entry.node != other;
  });
  return found == entries().end() ? nullptr : found->node;
}

namespace {

/// Of two runs of equal length, so many tokens from the front are equal.
std::int32_t equal_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) {
    return static_cast<std::int32_t>(a.size());
  }
  return static_cast<std::int32_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
}

constexpr std::size_t line_bytes = 64;
constexpr std::size_t key_ahead = 256;  // tokens: measured best with caches cold
constexpr std::size_t line_tokens = line_bytes / sizeof(TokenId);

void prefetch(const PrefixNode* node) {
  for (std::size_t byte = 0; byte < sizeof(PrefixNode); byte += line_bytes) {
    __builtin_prefetch(reinterpret_cast<const char*>(node) + byte);
  }
}

/// The front of an edge or key; the rest follows when it is read.
void prefetch(std::span<const TokenId> tokens) {
  constexpr std::size_t lines_max = 8;
  const std::size_t count = std::min(tokens.size(), lines_max * line_tokens);
  for (std::size_t token = 0; token < count; token += line_tokens) {
    __builtin_prefetch(&tokens[token]);
  }
}

/// A snapshot at the node or below, no matter which.
Snapshot* any_below(const PrefixNode* node) {
  while (node != nullptr && node->snapshot == nullptr) node = node->children.any();
  return node == nullptr ? nullptr : node->snapshot.get();
}

/// The shallowest snapshot at the node or below, of the first 1024 nodes looked at. Of all below it
/// holds the most of what leads to the node: kinds only ever drop pages as a sequence grows.
Snapshot* nearest_below(const PrefixNode* top) {
  if (top->snapshot != nullptr) return top->snapshot.get();
  constexpr std::size_t nodes_max = 1024;
  std::vector<const PrefixNode*> nodes{top};
  const PrefixNode* nearest = nullptr;
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    nodes[at]->children.for_each([&](TokenId, const PrefixNode* child) {
      if (nearest != nullptr && child->depth >= nearest->depth) return;
      if (child->snapshot != nullptr) {
        nearest = child;
      } else if (nodes.size() < nodes_max) {
        nodes.push_back(child);
      }
    });
  }
  return nearest == nullptr ? any_below(top) : nearest->snapshot.get();
}

Snapshot* nearest_above(const PrefixNode* node) {
  for (node = node->parent; node != nullptr; node = node->parent) {
    if (node->snapshot != nullptr) return node->snapshot.get();
  }
  return nullptr;
}

/// What a node has in common with others, were nothing at it or below it but what stands there.
void share_with_parent(Standing& standing, const PrefixNode* node) {
  const PrefixNode* const parent = node->parent;
  standing.shared = parent->depth;
  standing.other =
      parent->snapshot != nullptr ? parent->snapshot.get() : any_below(parent->children.any(node));
}

}  // namespace

PrefixTree::PrefixTree() : nodes_(1), root_(&nodes_.front()) {}

PrefixTree::Walk PrefixTree::walk(std::span<const TokenId> key) const {
  // First down by the first tokens of edges alone, which asks for the edges' memory early, then
  // the comparison of all tokens.
  std::vector<PrefixNode*> path;
  path.reserve(64);
  const std::size_t length = key.size();
  std::size_t asked = 0;  // so many tokens of the key were prefetched
  const PrefixNode* node = root_;
  for (std::size_t depth = 0; depth < length;) {
    PrefixNode* const child = node->children.find(key[depth]);
    if (child == nullptr) break;
    prefetch(child);
    for (; asked < std::min(length, depth + key_ahead); asked += line_tokens) {
      __builtin_prefetch(&key[asked]);
    }
    path.push_back(child);
    prefetch(child->tokens);
    node = child;
    depth = static_cast<std::size_t>(node->depth);
  }
  Walk walk{root_, 0};
  for (PrefixNode* const step : path) {
    const auto rest = key.subspan(static_cast<std::size_t>(walk.tokens));
    const std::size_t tokens = std::min(rest.size(), step->tokens.size());
    const std::int32_t equal =
        equal_tokens(rest.first(tokens), std::span(step->tokens).first(tokens));
    walk = {step, walk.tokens + equal};
    if (equal < static_cast<std::int32_t>(step->tokens.size())) break;
  }
  return walk;
}

Match PrefixTree::match(std::span<const TokenId> key, std::int32_t limit,
                        const MemoryLayout& layout) const {
  const Walk found = walk(key);
  Match match{.tokens = found.tokens};
  const bool only_own_length = layout.slots.per_superblock > 0;
  for (const PrefixNode* node = found.node; node != root_; node = node->parent) {
    // What all snapshots at the node and below have in common with the key.
    const std::int32_t common = std::min({node->depth, found.tokens, limit});
    if (common <= match.length) break;
    if (common <= node->parent->depth) continue;
    if (only_own_length) {
      if (node->snapshot == nullptr || node->depth > common) continue;
      match.snapshot = node->snapshot.get();
      match.length = common;
      break;
    }
    for (Snapshot* snapshot : {any_below(node), nearest_below(node)}) {
      const std::int32_t length = resumable_length(layout, snapshot->checkpoint, common);
      if (length > match.length) {
        match.snapshot = snapshot;
        match.length = length;
      }
      if (length == common) break;
    }
  }
  return match;
}

Standing PrefixTree::standing(std::span<const TokenId> key) const {
  const Walk found = walk(key);
  const auto depth = static_cast<std::int32_t>(key.size());
  const PrefixNode* const node = found.node;
  if (node->depth == depth && found.tokens == depth && node->snapshot != nullptr) {
    return standing(*node->snapshot);
  }
  Standing standing{.depth = depth, .shared = found.tokens, .other = any_below(node)};
  const bool whole = node->depth == found.tokens;  // the edge is on the way to the end of its node
  standing.above = whole && node->snapshot != nullptr ? node->snapshot.get() : nearest_above(node);
  return standing;
}

Standing PrefixTree::standing(const Snapshot& snapshot) const {
  const PrefixNode* const node = snapshot.node;
  Standing standing{
      .depth = node->depth, .above = nearest_above(node), .here = node->snapshot.get()};
  if (!node->children.empty()) {
    standing.shared = node->depth;
    standing.other = any_below(node->children.any());
    return standing;
  }
  share_with_parent(standing, node);
  return standing;
}

Standing PrefixTree::without_above(const Standing& standing) const {
  const PrefixNode* const above = standing.above->node;
  Standing without = standing;
  without.above = nearest_above(above);
  if (standing.shared > above->depth) return without;
  const PrefixNode* const own = standing.here == nullptr ? nullptr : standing.here->node;
  const PrefixNode* const beside = above->children.any(own);
  if (beside == nullptr) {
    share_with_parent(without, above);
  } else {
    without.other = any_below(beside);
  }
  return without;
}

PrefixNode* PrefixTree::new_node() {
  if (free_.empty()) return &nodes_.emplace_back();
  PrefixNode* const node = free_.back();
  free_.pop_back();
  return node;
}

void PrefixTree::release(PrefixNode* node) {
  *node = PrefixNode();
  free_.push_back(node);
}

/// A node at `depth`, which lies inside the edge of `node`, which keeps the lower part.
PrefixNode* PrefixTree::split(PrefixNode* node, std::int32_t depth) {
  PrefixNode* const upper = new_node();
  PrefixNode* const parent = node->parent;
  const auto cut = node->tokens.begin() + (depth - parent->depth);
  upper->tokens.assign(node->tokens.begin(), cut);
  upper->depth = depth;
  upper->parent = parent;
  parent->children.replace(upper->tokens.front(), upper);
  node->tokens = std::vector<TokenId>(cut, node->tokens.end());
  node->parent = upper;
  upper->children.insert(node->tokens.front(), node);
  return upper;
}

/// The node at the end of the key, made where there is none.
PrefixNode* PrefixTree::grow(std::span<const TokenId> key, Walk from) {
  PrefixNode* node = from.node;
  if (from.tokens < node->depth) node = split(node, from.tokens);
  const auto rest = key.subspan(static_cast<std::size_t>(from.tokens));
  if (rest.empty()) return node;
  PrefixNode* const leaf = new_node();
  leaf->tokens.assign(rest.begin(), rest.end());
  leaf->depth = static_cast<std::int32_t>(key.size());
  leaf->parent = node;
  node->children.insert(rest.front(), leaf);
  return leaf;
}

Snapshot* PrefixTree::insert(std::span<const TokenId> key, Checkpoint checkpoint,
                             SnapshotPlace place) {
  require(!key.empty() && checkpoint.length() == static_cast<std::int32_t>(key.size()),
          "prefix tree: the key has the tokens of the checkpoint");
  PrefixNode* const node = grow(key, walk(key));
  if (node->snapshot != nullptr) return nullptr;
  node->snapshot = std::make_unique<Snapshot>();
  node->snapshot->checkpoint = std::move(checkpoint);
  node->snapshot->place = place;
  node->snapshot->node = node;
  ++size_;
  return node->snapshot.get();
}

/// The node has one child and nothing else to be there for.
void PrefixTree::merge_into_child(PrefixNode* node) {
  PrefixNode* const child = node->children.any();
  node->tokens.insert(node->tokens.end(), child->tokens.begin(), child->tokens.end());
  child->tokens = std::move(node->tokens);
  child->parent = node->parent;
  node->parent->children.replace(child->tokens.front(), child);
  release(node);
}

Checkpoint PrefixTree::erase(Snapshot& snapshot) {
  PrefixNode* node = snapshot.node;
  require(node != nullptr && node->snapshot.get() == &snapshot,
          "prefix tree: a snapshot of this tree is erased once");
  Checkpoint checkpoint = std::move(snapshot.checkpoint);
  node->snapshot.reset();
  --size_;
  if (node->children.empty()) {
    PrefixNode* const parent = node->parent;
    parent->children.erase(node->tokens.front());
    release(node);
    node = parent;
  }
  if (node != root_ && node->snapshot == nullptr && node->children.size() == 1) {
    merge_into_child(node);
  }
  return checkpoint;
}

std::vector<TokenId> PrefixTree::key(const Snapshot& snapshot) {
  std::vector<TokenId> key(static_cast<std::size_t>(snapshot.node->depth));
  for (const PrefixNode* node = snapshot.node; node->parent != nullptr; node = node->parent) {
    std::copy(node->tokens.begin(), node->tokens.end(), key.begin() + node->parent->depth);
  }
  return key;
}

std::vector<Snapshot*> PrefixTree::on_the_way(std::span<const TokenId> key) const {
  const Walk found = walk(key);
  std::vector<Snapshot*> snapshots;
  for (const PrefixNode* node = found.node; node != root_; node = node->parent) {
    if (node->snapshot != nullptr && node->depth <= found.tokens) {
      snapshots.push_back(node->snapshot.get());
    }
  }
  std::reverse(snapshots.begin(), snapshots.end());
  return snapshots;
}

std::vector<Snapshot*> PrefixTree::snapshots() const {
  std::vector<Snapshot*> snapshots;
  for (const PrefixNode& node : nodes_) {
    if (node.snapshot != nullptr) snapshots.push_back(node.snapshot.get());
  }
  return snapshots;
}

void PrefixTree::audit() const {
  std::size_t nodes = 1;  // the root
  std::int32_t snapshots = 0;
  std::vector<const PrefixNode*> open{root_};
  while (!open.empty()) {
    const PrefixNode* const node = open.back();
    open.pop_back();
    std::int32_t children = 0;
    node->children.for_each([&](TokenId first, const PrefixNode* child) {
      const auto length = static_cast<std::int32_t>(child->tokens.size());
      require(length > 0 && child->tokens.front() == first, "prefix tree: edges by first token");
      require(child->parent == node && child->depth == node->depth + length,
              "prefix tree: a child begins where its parent ends");
      ++children;
      open.push_back(child);
    });
    require(children == node->children.size(), "prefix tree: children are counted");
    if (node == root_) continue;
    ++nodes;
    require(node->snapshot != nullptr || children >= 2, "prefix tree: every node has a reason");
    if (node->snapshot == nullptr) continue;
    ++snapshots;
    require(node->snapshot->node == node && node->snapshot->checkpoint.length() == node->depth,
            "prefix tree: a snapshot stands where its checkpoint ends");
  }
  require(snapshots == size_ && nodes + free_.size() == nodes_.size(),
          "prefix tree: nodes and snapshots are counted");
}

}  // namespace hyb
