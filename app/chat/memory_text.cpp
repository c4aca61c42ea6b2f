#include "app/chat/memory_text.h"

#include <fmt/format.h>

#include <string_view>

#include "app/options.h"
#include "app/ui/table.h"

namespace hyb::app {
namespace {

/// Rows of owner, bytes and a note.
class OwnerTable {
 public:
  void row(std::string_view owner, std::size_t bytes, std::string note = {}) {
    table_.rows.push_back({std::string(owner), bytes_text(bytes), std::move(note)});
  }

  /// The same for what may be absent: a row of nothing is left out.
  void units(std::string_view owner, const UnitUsage& usage, std::string_view unit) {
    if (usage.units > 0) row(owner, usage.bytes, fmt::format("{} {}", usage.units, unit));
  }

  std::string text() const { return plain_text(table_); }

 private:
  Table table_{.columns = {{""}, {"", Align::right}, {""}}, .rows = {}};
};

void add_pool(OwnerTable& table, const PoolUsage& pool) {
  for (const PoolUsage::Group& group : pool.groups) {
    table.units(fmt::format("keys and values, {}", group.kind), group.pages, "pages");
  }
  table.units("recurrent state, running", pool.live_slots, "slots");
  table.units("recurrent state, snapshots", pool.snapshot_slots, "slots");
  table.units("int8 snapshots", pool.packed, "units");
  table.row("free among these", pool.idle_bytes + pool.remainder_bytes);
  table.row("free", pool.free_bytes,
            fmt::format("{} of {} superblocks", pool.superblocks_free, pool.superblocks));
  if (pool.superblocks_withheld > 0) {
    const auto withheld = static_cast<std::size_t>(pool.superblocks_withheld);
    const auto free = static_cast<std::size_t>(pool.superblocks_free);
    table.row("of which the device lacks", pool.free_bytes / free * withheld,
              fmt::format("{} superblocks", withheld));
  }
}

std::string tree_text(const EngineUsage& usage) {
  const PrefixCacheStats& tree = usage.prefixes;
  return fmt::format(
      "prefix tree: {} snapshots; {} of {} prompts resumed, {} of {} known tokens; {} evicted\n"
      "memory: {} superblocks changed owner, {} sequences gave way, {} waited\n",
      usage.snapshots, tree.hits, tree.lookups, tree.tokens_resumed, tree.tokens_matched,
      tree.evicted, usage.pool.owner_changes, usage.preemptions, usage.deferrals);
}

}  // namespace

std::string kept_logits_text(const PrefixTree& tree) {
  std::size_t prompts = 0, bytes = 0;
  for (const Snapshot* snapshot : tree.snapshots()) {
    if (snapshot->logits.empty()) continue;
    ++prompts;
    bytes += snapshot->logits.size() * sizeof(float);
  }
  if (prompts == 0) return {};
  return fmt::format("kept for /regen, beside the budget: logits of {} prompts, {}\n", prompts,
                     bytes_text(bytes));
}

std::string memory_text(const MemoryPlan& plan, const EngineUsage& usage) {
  OwnerTable table;
  table.row("weights", plan.weights);
  table.row("workspace", plan.workspace);
  if (plan.library > 0) table.row("cuBLASLt", plan.library);
  add_pool(table, usage.pool);
  const std::size_t given = plan.weights + plan.workspace + plan.library + usage.pool.total();
  table.row("not asked for", plan.budget > given ? plan.budget - given : 0);
  table.row("budget", plan.budget, fmt::format("{} tokens a sequence", plan.length_max));
  if (plan.pinned > 0) table.row("pinned", plan.pinned, "of the machine's memory, besides");
  return table.text() + tree_text(usage);
}

}  // namespace hyb::app
