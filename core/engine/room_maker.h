#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/engine/memory_demand.h"
#include "core/engine/sequence.h"
#include "core/memory/pool/memory_pool.h"
#include "core/memory/prefix/prefix_cache.h"

namespace hyb {

/// Makes room in a pool by giving up what is needed least: rings, since drafts take no memory from
/// others, then snapshots, then the prompts held for further choices, then what others hold.
class RoomMaker {
 public:
  /// All outlive this; `running` are the sequences that hold memory, `prompts` those that further
  /// choices start from: they will compute them themselves.
  RoomMaker(MemoryPool& pool, PrefixCache& prefixes, const std::vector<Sequence*>& running,
            std::map<RequestId, Checkpoint>& prompts)
      : pool_(&pool), prefixes_(&prefixes), running_(&running), prompts_(&prompts) {}

  /// Gives up all rings, else a snapshot but not `keep`. False: there is none.
  bool evict(const Snapshot* keep = nullptr);
  /// The same, and where there is none something else.
  bool make(const Snapshot* keep = nullptr);
  /// What make() calls last: frees memory of the pool that is neither a sequence's nor a
  /// snapshot's. False: there is none.
  void on_dry(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  /// Returns whether a newcomer might find room beside what runs.
  bool may_fit(const Sequence& newcomer, const Lookup& lookup) const;
  /// Makes that room by evict(), not of the snapshot that was looked up, and not when that would
  /// not be enough. Free units scattered over many superblocks are compacted.
  bool make_for(const Sequence& newcomer, const Lookup& lookup);

  /// Returns whether the device lacks memory for a sequence of this length alone, and it is
  /// requested again now. Throws Error(memory) where that was in vain.
  bool retry_lacking(std::int32_t tokens);

 private:
  MemoryDemand demand_of(const Sequence& newcomer, const Lookup& lookup) const;

  MemoryPool* pool_;
  PrefixCache* prefixes_;
  const std::vector<Sequence*>* running_;
  std::map<RequestId, Checkpoint>* prompts_;
  std::function<bool()> reclaim_;
  bool has_asked_ = false;  ///< the device for what a sequence lacks, without success
};

}  // namespace hyb
