#include "app/replay/cache_policy.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "app/replay/marconi_policy.h"
#include "app/replay/sglang_policy.h"
#include "app/replay/tree_policy.h"
#include "app/replay/vllm_policy.h"
#include "core/base/error.h"
#include "core/memory/prefix/token_tree.h"

namespace hyb::app {

/// The upper bound for this order of requests: unlimited memory and a snapshot at every token.
class BoundPolicy final : public CachePolicy {
 public:
  explicit BoundPolicy(const ReplayShape& shape) : kv_bytes_per_token_(shape.kv_bytes_per_token) {}

  Served serve(const RequestTokens& tokens) override {
    const auto walk = tree_.walk(tokens.all);
    const std::int32_t reused = std::min(walk.tokens, tokens.prompt_length - 1);
    if (walk.tokens < tokens.length()) {
      tree_.append(tree_.split(walk),
                   std::span(tokens.all).subspan(static_cast<std::size_t>(walk.tokens)));
      tokens_ += tokens.length() - walk.tokens;
    }
    return {.reused = reused, .matched = reused};
  }

  CacheCounters counters() const override {
    CacheCounters counters;
    counters.kv_tokens_created = tokens_;
    counters.kv_bytes = tokens_ * kv_bytes_per_token_;
    return counters;
  }

 private:
  struct Nothing {};
  std::int64_t kv_bytes_per_token_;
  std::int64_t tokens_ = 0;  ///< in the tree
  TokenTree<Nothing> tree_;
};

namespace {

/// Remembers nothing.
class NoPolicy final : public CachePolicy {
 public:
  Served serve(const RequestTokens&) override { return {}; }
  CacheCounters counters() const override { return {}; }
};

}  // namespace

bool knows_windows(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::none:
    case PolicyKind::bound:
    case PolicyKind::vllm:
    case PolicyKind::lru:
    case PolicyKind::gd:
      return true;
    case PolicyKind::vllm_plus:
    case PolicyKind::sglang_plus:
    case PolicyKind::marconi:
    case PolicyKind::sglang:
      break;
  }
  return false;
}

std::unique_ptr<CachePolicy> make_policy(const PolicyOptions& options, const ReplayShape& shape) {
  if (!shape.windows.empty() && !knows_windows(options.kind)) {
    throw Error(ErrorKind::usage,
                fmt::format("{}: what {} does with layers that have windows is not simulated; "
                            "vllm, lru and gd are",
                            shape.name, word_of(words::policy, options.kind)));
  }
  switch (options.kind) {
    case PolicyKind::none:
      break;
    case PolicyKind::bound:
      return std::make_unique<BoundPolicy>(shape);
    case PolicyKind::vllm_plus:
      return std::make_unique<VllmPlusPolicy>(shape, options);
    case PolicyKind::sglang_plus:
      return std::make_unique<MarconiPolicy>(shape, options, MarconiPolicy::Eviction::leaf_lru);
    case PolicyKind::marconi:
      return std::make_unique<MarconiPolicy>(shape, options, MarconiPolicy::Eviction::flop_aware);
    case PolicyKind::vllm:
      return std::make_unique<VllmPolicy>(shape, options);
    case PolicyKind::sglang:
      return std::make_unique<SglangPolicy>(shape, options);
    case PolicyKind::lru:
    case PolicyKind::gd:
      return std::make_unique<TreePolicy>(shape, options);
  }
  return std::make_unique<NoPolicy>();
}

}  // namespace hyb::app
