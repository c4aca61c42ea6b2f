#include "app/replay/sglang_policy.h"

#include <algorithm>

namespace hyb::app {
namespace {

constexpr std::int32_t chunk_tokens = 64;

}  // namespace

SglangPolicy::SglangPolicy(const ReplayShape& shape, const PolicyOptions& options)
    : has_state_(shape.has_state()),
      prompt_end_snapshots_(options.prompt_end_snapshots),
      kv_bytes_per_token_(shape.kv_bytes_per_token),
      state_bytes_(shape.snapshot_bytes(options.snapshots)) {
  const double share = has_state_ ? options.ratio / (1 + options.ratio) : 0;
  state_budget_ = static_cast<std::int64_t>(share * static_cast<double>(options.budget_bytes));
  kv_budget_ = options.budget_bytes - state_budget_;
}

void SglangPolicy::use_kv(Tree::Node* node) {
  Holdings& held = node->value;
  leaf_ages_.erase({held.kv_time, node->id});
  held.kv_time = now_;
  if (node->is_leaf()) leaf_ages_.insert({held.kv_time, node->id});
}

void SglangPolicy::use_state(Tree::Node* node) {
  Holdings& held = node->value;
  state_ages_.erase({held.state_time, node->id});
  held.state_time = now_;
  state_ages_.insert({held.state_time, node->id});
}

void SglangPolicy::lock_path(Tree::Node* node, bool is_locked) {
  for (; node->parent != nullptr; node = node->parent) node->value.is_locked = is_locked;
}

void SglangPolicy::drop_state(Tree::Node* node) {
  Holdings& held = node->value;
  state_ages_.erase({held.state_time, node->id});
  held.has_state = false;
  counters_.snapshot_bytes -= state_bytes_;
  ++counters_.evictions;
}

/// Removes a leaf, and the nodes above that are left without a state and without another child.
void SglangPolicy::remove_leaf(Tree::Node* leaf) {
  for (Tree::Node* node = leaf; node != tree_.root();) {
    Tree::Node* const parent = node->parent;
    if (node->value.has_state) drop_state(node);
    leaf_ages_.erase({node->value.kv_time, node->id});
    counters_.kv_bytes -= node->edge_length() * kv_bytes_per_token_;
    tree_.remove_leaf(node);
    if (!parent->is_leaf()) return;
    const Holdings& held = parent->value;
    leaf_ages_.insert({held.kv_time, parent->id});
    if (held.is_locked || held.has_state || !has_state_) return;
    node = parent;
  }
}

bool SglangPolicy::make_room_for_kv(std::int32_t tokens) {
  const std::int64_t bytes = tokens * kv_bytes_per_token_;
  while (counters_.kv_bytes + bytes > kv_budget_) {
    const auto victim = std::find_if(leaf_ages_.begin(), leaf_ages_.end(), [&](const auto& age) {
      return !tree_.node(age.second)->value.is_locked;
    });
    if (victim == leaf_ages_.end()) return false;
    if (!has_state_) ++counters_.evictions;
    remove_leaf(tree_.node(victim->second));
  }
  return true;
}

bool SglangPolicy::make_room_for_state() {
  // The running request holds keys and values of its whole path, but one state: where it resumed.
  const auto is_free = [&](const auto& age) {
    const Tree::Node& node = *tree_.node(age.second);
    return age.second != resumed_ && !(node.is_leaf() && node.value.is_locked);
  };
  while (counters_.snapshot_bytes + state_bytes_ > state_budget_) {
    const auto victim = std::find_if(state_ages_.begin(), state_ages_.end(), is_free);
    if (victim == state_ages_.end()) return false;
    Tree::Node* const node = tree_.node(victim->second);
    if (node->is_leaf()) {
      remove_leaf(node);
    } else {
      drop_state(node);
    }
  }
  return true;
}

SglangPolicy::Tree::Node* SglangPolicy::extend(std::span<const TokenId> key) {
  const Tree::Walk walk = tree_.walk(key);
  const auto length = static_cast<std::int32_t>(key.size());
  lock_path(walk.last(), true);
  Tree::Node* const node = tree_.split(walk);
  if (walk.is_partial()) {
    node->value = {
        .is_kv_reused = walk.node->value.is_kv_reused, .is_locked = true, .kv_time = now_};
    walk.node->value.is_locked = false;
  }
  if (walk.tokens == length) return node;
  if (!make_room_for_kv(length - walk.tokens)) {
    lock_path(node, false);
    return nullptr;
  }
  leaf_ages_.erase({node->value.kv_time, node->id});
  Tree::Node* const leaf = tree_.append(node, key.subspan(static_cast<std::size_t>(walk.tokens)));
  leaf->value = {.is_locked = true, .kv_time = now_};
  leaf_ages_.insert({now_, leaf->id});
  counters_.kv_bytes += (length - walk.tokens) * kv_bytes_per_token_;
  counters_.kv_tokens_created += length - walk.tokens;
  return leaf;
}

void SglangPolicy::place_state(Tree::Node* node) {
  if (!has_state_ || node == tree_.root()) return;
  if (node->value.has_state) return use_state(node);
  if (!make_room_for_state()) return;
  Holdings& held = node->value;
  held.has_state = true;
  held.is_state_reused = false;
  held.state_time = now_;
  state_ages_.insert({held.state_time, node->id});
  counters_.snapshot_bytes += state_bytes_;
  ++counters_.snapshots_created;
}

Served SglangPolicy::serve(const RequestTokens& tokens) {
  ++now_;
  const std::span<const TokenId> all(tokens.all);
  const std::int32_t limit = tokens.prompt_length - 1;  // one token is left to draw from
  const Tree::Walk walk = tree_.walk(tokens.prompt());
  const std::vector<Tree::Node*> path = Tree::path_to(walk.last());
  Served served = {.reused = 0, .matched = std::min(walk.tokens, limit)};
  Tree::Node* hit = tree_.root();
  for (Tree::Node* const node : path) {
    if (node->value.has_state && node->depth <= limit) hit = node;
  }
  resumed_ = hit->id;
  served.reused = has_state_ ? hit->depth : served.matched;
  for (Tree::Node* const node : path) {
    if (node->depth > served.reused || node->value.is_kv_reused) continue;
    node->value.is_kv_reused = true;
    counters_.kv_tokens_reused += node->edge_length();
  }
  if (hit != tree_.root() && has_state_) {
    use_state(hit);
    if (!hit->value.is_state_reused) ++counters_.snapshots_reused;
    hit->value.is_state_reused = true;
  }

  std::vector<std::int32_t> ends;  // where states are left, ascending
  const std::int32_t branch = served.matched / chunk_tokens * chunk_tokens;
  if (has_state_ && branch > served.reused) ends.push_back(branch);
  const std::int32_t prompt_end = limit / chunk_tokens * chunk_tokens;
  if (prompt_end_snapshots_ && prompt_end > served.reused) ends.push_back(prompt_end);
  ends.push_back(tokens.length());
  Tree::Node* last = tree_.root();
  for (const std::int32_t end : ends) {
    Tree::Node* const node = extend(all.first(static_cast<std::size_t>(end)));
    if (node == nullptr) break;
    last = node;
    place_state(node);
  }
  lock_path(last, false);
  for (Tree::Node* node = last; node != tree_.root(); node = node->parent) use_kv(node);
  return served;
}

CacheCounters SglangPolicy::counters() const { return counters_; }

}  // namespace hyb::app
