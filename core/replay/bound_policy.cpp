#include "core/replay/bound_policy.h"

#include <algorithm>

namespace hyb {

Served BoundPolicy::serve(const RequestTokens& tokens) {
  const auto match = tree_.match(tokens.all);
  const std::int32_t reused = std::min(match.tokens, tokens.prompt_length - 1);
  if (match.tokens < tokens.length()) {
    const std::int32_t node =
        match.partial >= 0 ? tree_.split(match.partial, match.tokens) : match.last();
    tree_.append(node, std::span(tokens.all).subspan(static_cast<std::size_t>(match.tokens)));
    tokens_ += tokens.length() - match.tokens;
  }
  return {.reused = reused, .matched = reused};
}

CacheCounters BoundPolicy::counters() const {
  CacheCounters counters;
  counters.kv_tokens_created = tokens_;
  counters.kv_bytes = tokens_ * kv_bytes_per_token_;
  return counters;
}

}  // namespace hyb
