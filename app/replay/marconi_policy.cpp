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

/// Brings a node's place among the possible victims up to date.
void MarconiPolicy::refresh(std::int32_t node) {
  if (node == 0) return;
  Holdings& held = tree_[node].value;
  if (eviction_ == Eviction::leaf_lru) {
    leaf_ages_.erase({held.time, node});
    if (tree_.is_leaf(node)) leaf_ages_.insert({held.time, node});
    return;
  }
  const double freed = static_cast<double>(
      state_bytes_ +
      (tree_.is_leaf(node) ? tree_[node].edge_length() * shape_.kv_bytes_per_token : 0));
  const double saved =
      shape_.flops.of(tree_[node].depth) - shape_.flops.of(tree_[tree_[node].parent].depth);
  held.efficiency = saved / std::max(freed, 1.0);
  const bool is_candidate = tree_[node].children.size() <= 1;
  if (is_candidate && held.place < 0) {
    held.place = static_cast<std::int32_t>(candidates_.size());
    candidates_.push_back(node);
  } else if (!is_candidate && held.place >= 0) {
    const std::int32_t last = candidates_.back();
    candidates_[static_cast<std::size_t>(held.place)] = last;
    tree_[last].value.place = held.place;
    held.place = -1;
    candidates_.pop_back();
  }
}

void MarconiPolicy::use(const Tree::Match& match) {
  ++now_;
  const auto touch = [&](std::int32_t node) {
    if (node == 0) return;
    if (eviction_ == Eviction::leaf_lru) leaf_ages_.erase({tree_[node].value.time, node});
    tree_[node].value.time = now_;
    refresh(node);
  };
  if (eviction_ == Eviction::flop_aware) return touch(match.last());
  for (const std::int32_t node : match.path) touch(node);
}

Served MarconiPolicy::reuse(const RequestTokens& tokens) {
  const Tree::Match match = tree_.match(tokens.prompt());
  use(match);
  const std::int32_t limit = tokens.prompt_length;
  Served served = {.reused = tree_[match.last()].depth, .matched = std::min(match.tokens, limit)};
  if (!shape_.has_state()) served.reused = served.matched;
  std::int32_t last = 0;
  for (const std::int32_t node : match.path) {
    last = node;
    if (tree_[node].value.is_reused) continue;
    counters_.kv_tokens_reused += tree_[node].edge_length();
  }
  if (last != 0 && !tree_[last].value.is_reused) ++counters_.snapshots_reused;
  for (const std::int32_t node : match.path) tree_[node].value.is_reused = true;
  return served;
}

std::int64_t MarconiPolicy::bytes_to_insert(const Tree::Match& match, std::int32_t length) const {
  const std::int32_t more = length - match.tokens;
  const int states = (match.partial >= 0 ? 1 : 0) + (more > 0 ? 1 : 0);
  return states * state_bytes_ + more * shape_.kv_bytes_per_token;
}

std::int32_t MarconiPolicy::victim() const {
  if (eviction_ == Eviction::leaf_lru) {
    return leaf_ages_.empty() ? 0 : leaf_ages_.begin()->second;
  }
  ScoreRange efficiencies, recencies;
  const auto recency = [&](const Holdings& held) {
    return 1.0 / static_cast<double>(now_ + 1 - held.time);
  };
  for (const std::int32_t node : candidates_) {
    efficiencies.add(tree_[node].value.efficiency);
    recencies.add(recency(tree_[node].value));
  }
  std::int32_t victim = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const std::int32_t node : candidates_) {
    const Holdings& held = tree_[node].value;
    const double score =
        alpha_.value_or(0) * efficiencies.norm(held.efficiency) + recencies.norm(recency(held));
    if (score < least) {
      least = score;
      victim = node;
    }
  }
  return victim;
}

void MarconiPolicy::evict(std::int32_t node) {
  const std::int32_t parent = tree_[node].parent;
  const Holdings held = tree_[node].value;
  if (eviction_ == Eviction::leaf_lru) {
    leaf_ages_.erase({held.time, node});
  } else {
    const std::int32_t last = candidates_.back();
    candidates_[static_cast<std::size_t>(held.place)] = last;
    tree_[last].value.place = held.place;
    candidates_.pop_back();
  }
  ++counters_.evictions;
  counters_.snapshot_bytes -= state_bytes_;
  if (tree_.is_leaf(node)) {
    counters_.kv_bytes -= tree_[node].edge_length() * shape_.kv_bytes_per_token;
    tree_.remove_leaf(node);
    refresh(parent);
    return;
  }
  const std::int32_t child = tree_.merge_into_child(node);
  tree_[child].value.time = std::max(tree_[child].value.time, held.time);
  refresh(child);
}

void MarconiPolicy::insert(std::span<const TokenId> key) {
  const auto length = static_cast<std::int32_t>(key.size());
  Tree::Match match = tree_.match(key);
  while (counters_.kv_bytes + counters_.snapshot_bytes + bytes_to_insert(match, length) >
         options_.budget_bytes) {
    const std::int32_t node = victim();
    if (node == 0) return;  // larger than the whole budget
    if (tune_at_ == 0) {
      tune_at_ = bootstrap_factor * static_cast<std::int64_t>(history_.size());
    }
    evict(node);
    match = tree_.match(key);  // what went may have been on the way
  }
  use(match);
  counters_.kv_bytes += (length - match.tokens) * shape_.kv_bytes_per_token;
  counters_.kv_tokens_created += length - match.tokens;
  std::int32_t node = match.last();
  const auto born = [&](std::int32_t made) {
    tree_[made].value.time = ++now_;
    counters_.snapshot_bytes += state_bytes_;
    counters_.snapshots_created += shape_.has_state() ? 1 : 0;
    refresh(made);
  };
  if (match.partial >= 0) {
    node = tree_.split(match.partial, match.tokens);
    tree_[node].value.is_reused = tree_[match.partial].value.is_reused;
    refresh(match.partial);
    born(node);
  }
  if (match.tokens == length) return;
  const std::int32_t leaf = tree_.append(node, key.subspan(static_cast<std::size_t>(match.tokens)));
  born(leaf);
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
