#include "core/replay/cache_policy.h"

#include <array>
#include <utility>

#include "core/replay/bound_policy.h"
#include "core/replay/marconi_policy.h"
#include "core/replay/sglang_policy.h"
#include "core/replay/tree_policy.h"
#include "core/replay/vllm_plus_policy.h"
#include "core/replay/vllm_policy.h"

namespace hyb {
namespace {

constexpr std::array<std::pair<PolicyKind, std::string_view>, 9> names = {{
    {PolicyKind::none, "none"},
    {PolicyKind::bound, "bound"},
    {PolicyKind::vllm_plus, "vllm+"},
    {PolicyKind::sglang_plus, "sglang+"},
    {PolicyKind::marconi, "marconi"},
    {PolicyKind::vllm, "vllm"},
    {PolicyKind::sglang, "sglang"},
    {PolicyKind::lru, "lru"},
    {PolicyKind::gd, "gd"},
}};

/// Remembers nothing.
class NoPolicy final : public CachePolicy {
 public:
  Served serve(const RequestTokens&) override { return {}; }
  CacheCounters counters() const override { return {}; }
};

}  // namespace

std::string_view name_of(PolicyKind kind) { return names[static_cast<std::size_t>(kind)].second; }

std::optional<PolicyKind> policy_kind_of(std::string_view name) {
  for (const auto& [kind, known] : names) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

std::unique_ptr<CachePolicy> make_policy(const PolicyOptions& options, const ReplayShape& shape) {
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

}  // namespace hyb
