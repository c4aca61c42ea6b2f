#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "app/replay/cache_policy.h"
#include "core/memory/prefix/token_tree.h"

namespace hyb::app {

/// Marconi (Pan et al. 2025), and its baseline "SGLang+". A radix tree whose every node has a
/// state: each request leaves one after its last token and one where its insertion splits an edge,
/// which is looked up before the prefill. A hit ends at a node's end.
///
/// Baseline: the least recently used leaf is evicted, and a use refreshes the whole path. Marconi:
/// among all nodes with at most one child the one of least
///   alpha * norm(FLOPs saved beyond the parent / bytes freed) + norm(1 / age)
/// is evicted, norm mapping the least of all candidates to 0 and the greatest to 1; a child takes
/// over the tokens of an evicted parent; only the node used is refreshed. The paper divides by the
/// bytes of the whole prefix, its code subtracts the wrong layer's FLOPs: neither is repeated.
///
/// alpha starts at 0. When five times as many requests have been served as before the first
/// eviction, all of them are replayed from an empty tree under alpha 0, 0.1, ..., 2 in parallel,
/// and the alpha of the most tokens reused stays.
class MarconiPolicy final : public CachePolicy {
 public:
  enum class Eviction : std::uint8_t { leaf_lru, flop_aware };

  MarconiPolicy(const ReplayShape& shape, const PolicyOptions& options, Eviction eviction);

  /// Uses a fixed alpha instead of a tuned one.
  MarconiPolicy(const ReplayShape& shape, const PolicyOptions& options, double alpha);

  Served serve(const RequestTokens& tokens) override;
  CacheCounters counters() const override;

 private:
  struct Holdings {
    std::int64_t time = 0;
    double efficiency = 0;  ///< FLOPs saved beyond the parent per byte freed
    bool is_reused = false;
    std::int32_t place = -1;  ///< in candidates_
  };
  using Tree = TokenTree<Holdings>;

  Served reuse(const RequestTokens& tokens);
  std::int64_t bytes_to_insert(const Tree::Walk& walk, std::int32_t length) const;
  void insert(std::span<const TokenId> key);
  void refresh(Tree::Node* node);
  void use(const Tree::Walk& walk);
  Tree::Node* victim();
  void evict(Tree::Node* node);
  void drop_candidate(Tree::Node* node);
  void tune();

  ReplayShape shape_;
  PolicyOptions options_;
  Eviction eviction_;
  Tree tree_;
  std::int64_t state_bytes_;
  std::int64_t now_ = 0;
  std::vector<Tree::Node*> candidates_;                        ///< flop_aware
  std::set<std::pair<std::int64_t, std::int32_t>> leaf_ages_;  ///< leaf_lru: time, id
  CacheCounters counters_;

  // Tuning.
  std::optional<double> alpha_;
  std::vector<const ReplayRequest*> history_;
  std::int64_t tune_at_ = 0;  ///< requests; 0: nothing was evicted yet; -1: done
};

}  // namespace hyb::app
