#pragma once

#include "core/memory/token_tree.h"
#include "core/replay/cache_policy.h"

namespace hyb {

/// What no policy can pass in this order of requests: memory without end and a snapshot at every
/// token.
class BoundPolicy final : public CachePolicy {
 public:
  explicit BoundPolicy(const ReplayShape& shape) : kv_bytes_per_token_(shape.kv_bytes_per_token) {}

  Served serve(const RequestTokens& tokens) override;
  CacheCounters counters() const override;

 private:
  struct Nothing {};
  std::int64_t kv_bytes_per_token_;
  std::int64_t tokens_ = 0;  ///< in the tree
  TokenTree<Nothing> tree_;
};

}  // namespace hyb
