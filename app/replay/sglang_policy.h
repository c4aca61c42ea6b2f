#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "app/replay/cache_policy.h"
#include "core/memory/prefix/token_tree.h"

namespace hyb::app {

/// Prefix reuse of hybrid models in SGLang as it ships: a radix tree over two pools of fixed size,
/// one of keys and values and one of states, split by --ratio. Each pool evicts by an LRU of its
/// own: states one by one (keys and values of an inner node stay; a leaf is evicted with its
/// state), keys and values by the leaf. States are left at turn ends, where a lookup matched keys
/// and values deeper than states (rounded down to 64 tokens) and, on demand, at prompt ends. Only
/// the state that was used is refreshed.
class SglangPolicy final : public CachePolicy {
 public:
  SglangPolicy(const ReplayShape& shape, const PolicyOptions& options);

  Served serve(const RequestTokens& tokens) override;
  CacheCounters counters() const override;

 private:
  struct Holdings {
    bool has_state = false;
    bool is_state_reused = false;
    bool is_kv_reused = false;
    bool is_locked = false;  ///< by the request that runs
    std::int64_t kv_time = 0, state_time = 0;
  };
  using Tree = TokenTree<Holdings>;
  using Ages = std::set<std::pair<std::int64_t, std::int32_t>>;  ///< time of use, id of the node

  /// The node at the end of the key, made where there is none; its path is locked. Null: no room.
  Tree::Node* extend(std::span<const TokenId> key);
  void place_state(Tree::Node* node);
  bool make_room_for_kv(std::int32_t tokens);
  bool make_room_for_state();
  void remove_leaf(Tree::Node* leaf);
  void drop_state(Tree::Node* node);
  void use_kv(Tree::Node* node);
  void use_state(Tree::Node* node);
  void lock_path(Tree::Node* node, bool is_locked);

  bool has_state_;
  bool prompt_end_snapshots_;
  std::int64_t kv_bytes_per_token_, state_bytes_;
  std::int64_t kv_budget_, state_budget_;
  Tree tree_;
  Ages leaf_ages_, state_ages_;
  std::int32_t resumed_ = 0;  ///< id of the node whose state the running request resumed from
  std::int64_t now_ = 0;
  CacheCounters counters_;
};

}  // namespace hyb::app
