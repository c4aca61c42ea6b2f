#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "app/replay/cache_policy.h"
#include "app/replay/host_tier.h"
#include "app/replay/shape.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"
#include "models/memory_layout.h"

namespace hyb::app {

/// hyb's own prefix tree, eviction, placement and pools, driven as the engine drives them: resume,
/// cut the prompt where snapshots are wanted, publish, publish_final. There is no computation and
/// there are no bytes.
///
/// Without options.layout pages and snapshots are counted to the byte, and what the running request
/// holds is not, as with the other policies. With it they live in the engine's superblocks, which
/// change owners, and the running request is served out of them too.
class TreePolicy final : public CachePolicy {
 public:
  TreePolicy(const ReplayShape& shape, const PolicyOptions& options);

  Served serve(const RequestTokens& tokens) override;
  CacheCounters counters() const override;

 private:
  /// The units of a runner that has no bytes.
  class NoBytes final : public UnitBytes {
    void read(ViewId, std::int32_t, std::span<std::byte>) override {}
    void write(ViewId, std::int32_t, std::span<const std::byte>) override {}
  };

  Lookup resume(std::span<const TokenId> prompt, std::optional<Memory>& memory);
  bool advance(Memory& memory, std::int32_t length);
  void count_reused(const Lookup& lookup);
  void count_created(const Memory& memory, std::int32_t resumed);
  std::int64_t kv_bytes() const;
  std::int64_t snapshot_bytes() const;

  std::int64_t budget_bytes_;
  bool counts_bytes_;                               ///< the pool has room for more than the budget
  std::int32_t chunk_tokens_;                       ///< of a chunk of the prompt
  std::vector<std::unique_ptr<MemoryKind>> kinds_;  ///< of windows, where bytes are counted
  MemoryPool pool_;
  PrefixCache cache_;
  NoBytes no_bytes_;
  SnapshotIo snapshot_io_;
  std::optional<HostTier> host_;
  std::vector<bool> page_is_reused_;  ///< by page
  CacheCounters counters_;
};

/// The pools that the engine would make from a budget for a model of this shape: pages of 16 tokens
/// for the attention layers of each reach, slots, and packed snapshots where they are int8. Layers
/// of one reach are taken to be alike. Throws Error(memory) with the numbers when the bytes hold no
/// sequence.
models::ModelMemoryLayout superblock_pools(const ReplayShape& shape, std::int64_t budget_bytes,
                                           Precision snapshots);

}  // namespace hyb::app
