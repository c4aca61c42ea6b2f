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

void SglangPolicy::use_kv(std::int32_t node) {
  Holdings& held = tree_[node].value;
  leaf_ages_.erase({held.kv_time, node});
  held.kv_time = now_;
  if (tree_.is_leaf(node)) leaf_ages_.insert({held.kv_time, node});
}

void SglangPolicy::use_state(std::int32_t node) {
  Holdings& held = tree_[node].value;
  state_ages_.erase({held.state_time, node});
  held.state_time = now_;
  state_ages_.insert({held.state_time, node});
}

void SglangPolicy::lock_path(std::int32_t node, bool is_locked) {
  for (; node != 0; node = tree_[node].parent) tree_[node].value.is_locked = is_locked;
}

void SglangPolicy::drop_state(std::int32_t node) {
  Holdings& held = tree_[node].value;
  state_ages_.erase({held.state_time, node});
  held.has_state = false;
  counters_.snapshot_bytes -= state_bytes_;
  ++counters_.evictions;
}

/// A leaf goes, and with it what is left above without a state and without another child.
void SglangPolicy::remove_leaf(std::int32_t leaf) {
  for (std::int32_t node = leaf; node != 0;) {
    const std::int32_t parent = tree_[node].parent;
    if (tree_[node].value.has_state) drop_state(node);
    leaf_ages_.erase({tree_[node].value.kv_time, node});
    counters_.kv_bytes -= tree_[node].edge_length() * kv_bytes_per_token_;
    tree_.remove_leaf(node);
    if (parent == 0 || !tree_.is_leaf(parent)) return;
    leaf_ages_.insert({tree_[parent].value.kv_time, parent});
    const Holdings& held = tree_[parent].value;
    if (held.is_locked || held.has_state || !has_state_) return;
    node = parent;
  }
}

bool SglangPolicy::make_room_for_kv(std::int32_t tokens) {
  const std::int64_t bytes = tokens * kv_bytes_per_token_;
  while (counters_.kv_bytes + bytes > kv_budget_) {
    const auto victim = std::find_if(leaf_ages_.begin(), leaf_ages_.end(), [&](const auto& age) {
      return !tree_[age.second].value.is_locked;
    });
    if (victim == leaf_ages_.end()) return false;
    if (!has_state_) ++counters_.evictions;
    remove_leaf(victim->second);
  }
  return true;
}

bool SglangPolicy::make_room_for_state() {
  // The request that runs holds keys and values of its whole path, but one state: where it resumed.
  const auto is_free = [&](const auto& age) {
    return age.second != resumed_ &&
           !(tree_.is_leaf(age.second) && tree_[age.second].value.is_locked);
  };
  while (counters_.snapshot_bytes + state_bytes_ > state_budget_) {
    const auto victim = std::find_if(state_ages_.begin(), state_ages_.end(), is_free);
    if (victim == state_ages_.end()) return false;
    if (tree_.is_leaf(victim->second)) {
      remove_leaf(victim->second);
    } else {
      drop_state(victim->second);
    }
  }
  return true;
}

std::int32_t SglangPolicy::extend(std::span<const TokenId> key) {
  const Tree::Match match = tree_.match(key);
  const auto length = static_cast<std::int32_t>(key.size());
  std::int32_t node = match.last();
  lock_path(node, true);
  if (match.partial != -1) {
    tree_[match.partial].value.is_locked = true;
    node = tree_.split(match.partial, match.tokens);
    Holdings& held = tree_[node].value;
    held = {.is_kv_reused = tree_[match.partial].value.is_kv_reused,
            .is_locked = true,
            .kv_time = now_};
    tree_[match.partial].value.is_locked = false;
  }
  if (match.tokens == length) return node;
  if (!make_room_for_kv(length - match.tokens)) {
    lock_path(node, false);
    return -1;
  }
  leaf_ages_.erase({tree_[node].value.kv_time, node});
  const std::int32_t leaf = tree_.append(node, key.subspan(static_cast<std::size_t>(match.tokens)));
  tree_[leaf].value = {.is_locked = true, .kv_time = now_};
  leaf_ages_.insert({now_, leaf});
  counters_.kv_bytes += (length - match.tokens) * kv_bytes_per_token_;
  counters_.kv_tokens_created += length - match.tokens;
  return leaf;
}

void SglangPolicy::place_state(std::int32_t node) {
  if (!has_state_ || node <= 0) return;
  if (tree_[node].value.has_state) return use_state(node);
  if (!make_room_for_state()) return;
  Holdings& held = tree_[node].value;
  held.has_state = true;
  held.is_state_reused = false;
  held.state_time = now_;
  state_ages_.insert({held.state_time, node});
  counters_.snapshot_bytes += state_bytes_;
  ++counters_.snapshots_created;
}

Served SglangPolicy::serve(const RequestTokens& tokens) {
  ++now_;
  const std::span<const TokenId> all(tokens.all);
  const std::int32_t limit = tokens.prompt_length - 1;  // one token is left to draw from
  const Tree::Match match = tree_.match(tokens.prompt());
  Served served = {.reused = 0, .matched = std::min(match.tokens, limit)};
  std::int32_t hit = 0;
  for (const std::int32_t node : match.path) {
    if (tree_[node].value.has_state && tree_[node].depth <= limit) hit = node;
  }
  resumed_ = hit;
  served.reused = has_state_ ? tree_[hit].depth : served.matched;
  for (const std::int32_t node : match.path) {
    Holdings& held = tree_[node].value;
    if (tree_[node].depth <= served.reused && !held.is_kv_reused) {
      held.is_kv_reused = true;
      counters_.kv_tokens_reused += tree_[node].edge_length();
    }
  }
  if (hit != 0 && has_state_) {
    use_state(hit);
    Holdings& held = tree_[hit].value;
    if (!held.is_state_reused) ++counters_.snapshots_reused;
    held.is_state_reused = true;
  }

  std::vector<std::int32_t> ends;  // where states are left, ascending
  const std::int32_t branch = served.matched / chunk_tokens * chunk_tokens;
  if (has_state_ && branch > served.reused) ends.push_back(branch);
  const std::int32_t prompt_end = limit / chunk_tokens * chunk_tokens;
  if (prompt_end_snapshots_ && prompt_end > served.reused) ends.push_back(prompt_end);
  ends.push_back(tokens.length());
  std::int32_t last = 0;
  for (const std::int32_t end : ends) {
    const std::int32_t node = extend(all.first(static_cast<std::size_t>(end)));
    if (node < 0) break;
    last = node;
    place_state(node);
  }
  lock_path(last, false);
  for (std::int32_t node = last; node != 0; node = tree_[node].parent) use_kv(node);
  return served;
}

CacheCounters SglangPolicy::counters() const { return counters_; }

}  // namespace hyb::app
