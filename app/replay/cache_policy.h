#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "app/options/words.h"
#include "app/replay/shape.h"
#include "core/engine/trace.h"
#include "core/memory/pool/layout.h"

namespace hyb::app {

/// Counts what one request found in the cache.
struct Served {
  std::int32_t reused = 0;   ///< prompt tokens that need no prefill
  std::int32_t matched = 0;  ///< prompt tokens whose keys and values were there: reused or more
};

/// Counts of a policy since its start, and what it holds now.
struct CacheCounters {
  std::int64_t evictions = 0;  ///< snapshots, pages or nodes, whatever the policy evicts
  std::int64_t flips = 0;      ///< superblocks that changed their owner
  std::int64_t snapshots_created = 0;
  std::int64_t snapshots_reused = 0;  ///< of those, at least once
  std::int64_t kv_tokens_created = 0;
  std::int64_t kv_tokens_reused = 0;  ///< of those, at least once
  std::int64_t kv_bytes = 0;          ///< held now
  std::int64_t snapshot_bytes = 0;    ///< held now
  /// Bytes that superblocks leave idle: free units in those that are in use, what their owner
  /// cannot use, and what the budget has beyond whole superblocks.
  std::int64_t idle_bytes = 0;
  std::int64_t host_bytes = 0;        ///< held now by a host tier, besides
  std::int64_t tokens_from_host = 0;  ///< reused from snapshots that it gave back
  std::optional<double> alpha;        ///< of a policy that has one
};

/// Prefix reuse under one budget of bytes, without a model. Requests are served one after the
/// other: match, prefill, decode, insert; what a running request itself holds is not counted.
class CachePolicy {
 public:
  virtual ~CachePolicy() = default;
  virtual Served serve(const RequestTokens& tokens) = 0;
  virtual CacheCounters counters() const = 0;
};

enum class PolicyKind : std::uint8_t {
  none,
  vllm_plus,
  sglang_plus,
  marconi,
  vllm,
  sglang,
  lru,
  gd,
  bound
};

namespace words {

inline constexpr Words<PolicyKind, 9> policy = {{{"none", PolicyKind::none},
                                                 {"vllm+", PolicyKind::vllm_plus},
                                                 {"sglang+", PolicyKind::sglang_plus},
                                                 {"marconi", PolicyKind::marconi},
                                                 {"vllm", PolicyKind::vllm},
                                                 {"sglang", PolicyKind::sglang},
                                                 {"lru", PolicyKind::lru},
                                                 {"gd", PolicyKind::gd},
                                                 {"bound", PolicyKind::bound}}};

}  // namespace words

struct PolicyOptions {
  PolicyKind kind = PolicyKind::gd;
  Precision snapshots = Precision::exact;
  std::int64_t budget_bytes = 0;
  std::int32_t block_tokens = 32;     ///< vllm_plus
  double ratio = 0.9;                 ///< sglang: bytes of state to bytes of keys and values
  bool prompt_end_snapshots = false;  ///< sglang: in addition to those at turn ends
  /// lru, gd: the engine's superblocks instead of a count of bytes. Outlives the policy; as large
  /// as the budget.
  const MemoryLayout* layout = nullptr;
  std::int64_t host_bytes = 0;  ///< lru, gd: of a host tier besides the budget; 0: there is none
};

/// True if the policy's rules for layers with windows are simulated.
bool knows_windows(PolicyKind kind);

/// Throws Error(usage) where the shape has windows and the policy does not know them. The shape
/// outlives the policy, and the requests served outlive it.
std::unique_ptr<CachePolicy> make_policy(const PolicyOptions& options, const ReplayShape& shape);

}  // namespace hyb::app
