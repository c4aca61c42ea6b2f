#include "app/replay/marconi_policy.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

namespace hyb::app {
namespace {

constexpr std::int64_t bootstrap_factor = 5;
constexpr int alphas = 21;

double alpha_of(int step) { return 0.1 * step; }

/// Maps [least, greatest] to [0, 1].
class ScoreRange {
 public:
  void add(double value) {
    least_ = std::min(least_, value);
    greatest_ = std::max(greatest_, value);
  }
  double norm(double value) const {
    return greatest_ > least_ ? (value - least_) / (greatest_ - least_) : 0;
  }

 private:
  double least_ = std::numeric_limits<double>::infinity();
  double greatest_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

MarconiPolicy::MarconiPolicy(const ReplayShape& shape, const PolicyOptions& options,
                             Eviction eviction)
    : shape_(shape),
      options_(options),
      eviction_(eviction),
      state_bytes_(shape.snapshot_bytes(options.snapshots)) {}

MarconiPolicy::MarconiPolicy(const ReplayShape& shape, const PolicyOptions& options, double alpha)
    : MarconiPolicy(shape, options, Eviction::flop_aware) {
  alpha_ = alpha;
  tune_at_ = -1;
}

void MarconiPolicy::drop_candidate(Tree::Node* node) {
  Tree::Node* const last = candidates_.back();
  candidates_[static_cast<std::size_t>(node->value.place)] = last;
  last->value.place = node->value.place;
  node->value.place = -1;
  candidates_.pop_back();
}

/// Brings a node's place among the possible victims up to date.
void MarconiPolicy::refresh(Tree::Node* node) {
  if (node == tree_.root()) return;
  Holdings& held = node->value;
  if (eviction_ == Eviction::leaf_lru) {
    leaf_ages_.erase({held.time, node->id});
    if (node->is_leaf()) leaf_ages_.insert({held.time, node->id});
    return;
  }
  const double freed = static_cast<double>(
      state_bytes_ + (node->is_leaf() ? node->edge_length() * shape_.kv_bytes_per_token : 0));
  const double saved = shape_.flops.of(node->depth) - shape_.flops.of(node->parent->depth);
  held.efficiency = saved / std::max(freed, 1.0);
  const bool is_candidate = node->children.size() <= 1;
  if (is_candidate && held.place < 0) {
    held.place = static_cast<std::int32_t>(candidates_.size());
    candidates_.push_back(node);
  } else if (!is_candidate && held.place >= 0) {
    drop_candidate(node);
  }
}

void MarconiPolicy::use(const Tree::Walk& walk) {
  ++now_;
  const auto touch = [&](Tree::Node* node) {
    if (node == tree_.root()) return;
    if (eviction_ == Eviction::leaf_lru) leaf_ages_.erase({node->value.time, node->id});
    node->value.time = now_;
    refresh(node);
  };
  if (eviction_ == Eviction::flop_aware) return touch(walk.last());
  for (Tree::Node* const node : Tree::path_to(walk.last())) touch(node);
}

Served MarconiPolicy::reuse(const RequestTokens& tokens) {
  const Tree::Walk walk = tree_.walk(tokens.prompt());
  use(walk);
  Tree::Node* const last = walk.last();
  const std::int32_t limit = tokens.prompt_length;
  Served served = {.reused = last->depth, .matched = std::min(walk.tokens, limit)};
  if (!shape_.has_state()) served.reused = served.matched;
  if (last != tree_.root() && !last->value.is_reused) ++counters_.snapshots_reused;
  for (Tree::Node* const node : Tree::path_to(last)) {
    if (!node->value.is_reused) counters_.kv_tokens_reused += node->edge_length();
    node->value.is_reused = true;
  }
  return served;
}

std::int64_t MarconiPolicy::bytes_to_insert(const Tree::Walk& walk, std::int32_t length) const {
  const std::int32_t more = length - walk.tokens;
  const int states = (walk.is_partial() ? 1 : 0) + (more > 0 ? 1 : 0);
  return states * state_bytes_ + more * shape_.kv_bytes_per_token;
}

/// Null: there is none.
MarconiPolicy::Tree::Node* MarconiPolicy::victim() {
  if (eviction_ == Eviction::leaf_lru) {
    return leaf_ages_.empty() ? nullptr : tree_.node(leaf_ages_.begin()->second);
  }
  ScoreRange efficiencies, recencies;
  const auto recency = [&](const Holdings& held) {
    return 1.0 / static_cast<double>(now_ + 1 - held.time);
  };
  for (const Tree::Node* const node : candidates_) {
    efficiencies.add(node->value.efficiency);
    recencies.add(recency(node->value));
  }
  Tree::Node* victim = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (Tree::Node* const node : candidates_) {
    const Holdings& held = node->value;
    const double score =
        alpha_.value_or(0) * efficiencies.norm(held.efficiency) + recencies.norm(recency(held));
    if (score < least) {
      least = score;
      victim = node;
    }
  }
  return victim;
}

void MarconiPolicy::evict(Tree::Node* node) {
  Tree::Node* const parent = node->parent;
  const std::int64_t time = node->value.time;
  if (eviction_ == Eviction::leaf_lru) {
    leaf_ages_.erase({time, node->id});
  } else {
    drop_candidate(node);
  }
  ++counters_.evictions;
  counters_.snapshot_bytes -= state_bytes_;
  if (node->is_leaf()) {
    counters_.kv_bytes -= node->edge_length() * shape_.kv_bytes_per_token;
    tree_.remove_leaf(node);
    refresh(parent);
    return;
  }
  Tree::Node* const child = tree_.merge_into_child(node);
  child->value.time = std::max(child->value.time, time);
  refresh(child);
}

void MarconiPolicy::insert(std::span<const TokenId> key) {
  const auto length = static_cast<std::int32_t>(key.size());
  Tree::Walk walk = tree_.walk(key);
  while (counters_.kv_bytes + counters_.snapshot_bytes + bytes_to_insert(walk, length) >
         options_.budget_bytes) {
    Tree::Node* const node = victim();
    if (node == nullptr) return;  // larger than the whole budget
    if (tune_at_ == 0) {
      tune_at_ = bootstrap_factor * static_cast<std::int64_t>(history_.size());
    }
    evict(node);
    walk = tree_.walk(key);  // the victim may have been on the path
  }
  use(walk);
  counters_.kv_bytes += (length - walk.tokens) * shape_.kv_bytes_per_token;
  counters_.kv_tokens_created += length - walk.tokens;
  const auto add_state = [&](Tree::Node* made) {
    made->value.time = ++now_;
    counters_.snapshot_bytes += state_bytes_;
    counters_.snapshots_created += shape_.has_state() ? 1 : 0;
    refresh(made);
  };
  Tree::Node* const node = tree_.split(walk);
  if (walk.is_partial()) {
    node->value.is_reused = walk.node->value.is_reused;
    refresh(walk.node);
    add_state(node);
  }
  if (walk.tokens == length) return;
  Tree::Node* const leaf = tree_.append(node, key.subspan(static_cast<std::size_t>(walk.tokens)));
  add_state(leaf);
  refresh(node);
}

void MarconiPolicy::tune() {
  tune_at_ = -1;
  std::vector<std::int64_t> reused(alphas, 0);
  std::atomic<int> next = 0;
  const auto work = [&] {
    for (int step = next++; step < alphas; step = next++) {
      MarconiPolicy policy(shape_, options_, alpha_of(step));
      for (const ReplayRequest* request : history_) {
        reused[static_cast<std::size_t>(step)] += policy.serve(RequestTokens(*request)).reused;
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
      workers.emplace_back(work);
    }
  }
  alpha_ =
      alpha_of(static_cast<int>(std::max_element(reused.begin(), reused.end()) - reused.begin()));
  history_.clear();
}

Served MarconiPolicy::serve(const RequestTokens& tokens) {
  if (eviction_ == Eviction::flop_aware && tune_at_ >= 0) {
    if (tune_at_ > 0 && static_cast<std::int64_t>(history_.size()) >= tune_at_) {
      tune();
    } else {
      history_.push_back(tokens.request);
    }
  }
  const Served served = reuse(tokens);
  insert(tokens.all);
  return served;
}

CacheCounters MarconiPolicy::counters() const {
  CacheCounters counters = counters_;
  if (eviction_ == Eviction::flop_aware) counters.alpha = alpha_.value_or(0);
  return counters;
}

}  // namespace hyb::app
