#include "app/replay/tree_policy.h"

#include <algorithm>
#include <numeric>

#include "core/memory/pool/layout.h"

namespace hyb::app {
namespace {

constexpr std::int32_t page_tokens = models::page_tokens_default;
/// Chunk in which the engine runs prompts of models with windows: pages that have left the windows
/// serve the next chunk.
constexpr std::int32_t prompt_chunk_tokens = 512;

PrefixCacheOptions cache_options(const ReplayShape& shape, const PolicyOptions& options) {
  return {
      .precision = options.snapshots,
      .eviction = options.kind == PolicyKind::lru ? EvictionRule::lru : EvictionRule::greedy_dual,
      .cost = {.linear = shape.seconds.linear, .square = shape.seconds.square},
      .placement = PlacementPrior::unknown};
}

/// Pages, slots and packed snapshots, each in a pool of its own that holds more than the budget: so
/// the budget alone decides. Adds the kinds of windows that it refers to.
MemoryLayout byte_layout(const ReplayShape& shape, const PolicyOptions& options,
                         std::vector<std::unique_ptr<MemoryKind>>& kinds) {
  static const FullAttention full;
  constexpr std::int64_t units_max = std::int64_t{1} << 28;
  constexpr std::int64_t running_tokens = 2 * TraceReader::request_tokens_max;
  constexpr std::int64_t running_snapshots = 64;
  const auto units = [&](std::int64_t bytes, std::int64_t spare) {
    const std::int64_t count = options.budget_bytes / std::max<std::int64_t>(bytes, 1) + spare;
    return static_cast<std::int32_t>(std::min(count, units_max));
  };
  MemoryLayout layout;
  layout.fixed_superblocks.clear();
  const auto add_group = [&](const MemoryKind& kind, std::int64_t bytes_per_token) {
    const std::int64_t page_bytes = page_tokens * bytes_per_token;
    layout.page_tokens = page_tokens;
    layout.groups.push_back(
        {.kind = &kind,
         .page_bytes = static_cast<std::size_t>(page_bytes),
         .pages_per_superblock = units(page_bytes, running_tokens / page_tokens)});
    layout.fixed_superblocks.push_back(1);
  };
  if (shape.kv_bytes_per_token > 0) add_group(full, shape.kv_bytes_per_token);
  for (const WindowLayers& layers : shape.windows) {
    add_group(*kinds.emplace_back(models::kind_of(layers.reach)), layers.kv_bytes_per_token);
  }
  const bool is_packed = options.snapshots == Precision::int8;
  const auto slots_of = [&](std::int64_t bytes) {
    return SlotShape{.bytes = static_cast<std::size_t>(bytes),
                     .per_superblock = units(bytes, running_snapshots)};
  };
  if (shape.has_state()) {
    layout.slots = slots_of(shape.state_bytes);
    if (is_packed) layout.packed = slots_of(shape.state_bytes_int8);
  }
  layout.fixed_superblocks.push_back(shape.has_state() ? 1 : 0);
  layout.fixed_superblocks.push_back(shape.has_state() && is_packed ? 1 : 0);
  layout.fixed_superblocks.push_back(0);
  for (std::int32_t view = 0; view < layout.views(); ++view) {
    const auto bytes = static_cast<std::size_t>(layout.units_per_superblock(ViewId{view})) *
                       layout.unit_bytes(ViewId{view});
    layout.superblock_bytes = std::max(layout.superblock_bytes, bytes);
  }
  layout.superblocks = std::accumulate(layout.fixed_superblocks.begin(),
                                       layout.fixed_superblocks.end(), std::int32_t{0});
  return layout;
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + models::slot_alignment - 1) / models::slot_alignment * models::slot_alignment;
}

models::Geometry geometry_of(const ReplayShape& shape) {
  models::Geometry geometry{};
  geometry.page_tokens = page_tokens;
  geometry.kv_bytes_per_token = static_cast<std::size_t>(shape.kv_bytes_per_token);
  const auto layers = static_cast<std::size_t>(shape.attention_layers);
  if (layers > 0) {
    models::PageLayout page{};
    page.page_bytes = geometry.kv_bytes_per_token * page_tokens / layers;
    geometry.pages.assign(layers, page);
  }
  for (const WindowLayers& window : shape.windows) {
    models::PageLayout page{};
    page.page_bytes = static_cast<std::size_t>(window.kv_bytes_per_token) * page_tokens;
    page.reach = window.reach;
    geometry.pages.push_back(page);
    geometry.window_kv_bytes += static_cast<std::size_t>(window.bytes());
  }
  for (const models::PageLayout& page : geometry.pages) geometry.page_bytes += page.page_bytes;
  geometry.state_bytes_per_sequence = static_cast<std::size_t>(shape.state_bytes);
  geometry.slot_bytes = aligned(geometry.state_bytes_per_sequence);
  if (shape.has_state()) {
    // A piece without rows packs to its own size.
    models::SlotPiece piece{};
    piece.conv_bytes = static_cast<std::size_t>(shape.state_bytes_int8);
    geometry.pieces = {piece};
  }
  return geometry;
}

}  // namespace

TreePolicy::TreePolicy(const ReplayShape& shape, const PolicyOptions& options)
    : budget_bytes_(options.budget_bytes),
      counts_bytes_(options.layout == nullptr),
      chunk_tokens_(shape.windows.empty() ? length_endless : prompt_chunk_tokens),
      pool_(options.layout != nullptr ? *options.layout : byte_layout(shape, options, kinds_)),
      cache_(pool_, cache_options(shape, options)),
      snapshot_io_(pool_, no_bytes_, cache_, [this] { pool_.take_orders(); }) {
  if (options.host_bytes == 0) return;
  host_.emplace(pool_.layout(), options.host_bytes, cache_.options().cost);
  cache_.on_evict([this](std::span<const TokenId> key, const Snapshot& snapshot) {
    host_->keep(key, snapshot);
  });
}

std::int64_t TreePolicy::kv_bytes() const {
  return static_cast<std::int64_t>(pool_.usage().page_bytes());
}

std::int64_t TreePolicy::snapshot_bytes() const {
  const PoolUsage usage = pool_.usage();
  return static_cast<std::int64_t>(usage.snapshot_slots.bytes + usage.packed.bytes);
}

/// The memory of the request; none where it can never run.
Lookup TreePolicy::resume(std::span<const TokenId> prompt, std::optional<Memory>& memory) {
  for (;;) {
    const Lookup lookup = cache_.look_up(prompt);
    const bool is_first_use = lookup.snapshot != nullptr && !lookup.snapshot->used;
    memory = cache_.resume(lookup);
    if (memory) {
      if (is_first_use) ++counters_.snapshots_reused;
      if (lookup.source == SnapshotSource::host) counters_.tokens_from_host += lookup.resumable;
      if (lookup.snapshot != nullptr) count_reused(lookup);
      return lookup;
    }
    if (!cache_.evict(lookup.snapshot) && !cache_.evict()) return {};
  }
}

void TreePolicy::count_reused(const Lookup& lookup) {
  if (pool_.layout().group_count() == 0) return;
  const PageTable& pages = lookup.snapshot->checkpoint.tables().front();
  for (std::int32_t at = 0; at < lookup.resumable; at += page_tokens) {
    const PageId id = pages[static_cast<std::size_t>(at / page_tokens)];
    if (id == no_page) continue;  // out of the window
    const auto page = static_cast<std::size_t>(index(id));
    if (page >= page_is_reused_.size()) page_is_reused_.resize(page + 1);
    if (page_is_reused_[page]) continue;
    page_is_reused_[page] = true;
    // Pages that a host tier gave back were created, and perhaps counted, where they were before.
    if (lookup.source == SnapshotSource::host) continue;
    counters_.kv_tokens_reused += std::min(page_tokens, lookup.resumable - at);
  }
}

/// Counts the pages that a request wrote, including one that it copied to continue in it.
void TreePolicy::count_created(const Memory& memory, std::int32_t resumed) {
  if (pool_.layout().group_count() == 0) return;
  const PageTable& pages = memory.tables().front();
  const std::int32_t first = resumed / page_tokens;
  counters_.kv_tokens_created += memory.length() - first * page_tokens;
  for (std::size_t i = static_cast<std::size_t>(first); i < pages.size(); ++i) {
    if (pages[i] == no_page) continue;
    const auto page = static_cast<std::size_t>(index(pages[i]));
    if (page >= page_is_reused_.size()) page_is_reused_.resize(page + 1);
    page_is_reused_[page] = false;
  }
}

bool TreePolicy::advance(Memory& memory, std::int32_t length) {
  while (memory.length() < length) {
    const std::int32_t tokens = std::min(length - memory.length(), chunk_tokens_);
    while (!memory.reserve(tokens)) {
      if (!cache_.evict()) return false;
    }
    memory.keep(tokens);
  }
  return true;
}

Served TreePolicy::serve(const RequestTokens& tokens) {
  const std::span<const TokenId> all(tokens.all);
  if (host_) host_->fetch(snapshot_io_, tokens.prompt(), cache_.look_up(tokens.prompt()).resumable);
  std::optional<Memory> memory;
  const Lookup lookup = resume(tokens.prompt(), memory);
  if (!memory) return {};
  const std::optional<PromptPlan>& plan = tokens.request->plan;
  const std::vector<Cut> cuts = plan ? cache_.cuts_at(lookup, tokens.prompt(), plan->cuts)
                                     : cache_.cuts(lookup, tokens.prompt(), {});
  bool has_room = true;
  for (const Cut& cut : cuts) {
    has_room = advance(*memory, cut.length);
    if (!has_room) break;
    cache_.publish(all, *memory, cut.place);
  }
  if (has_room && advance(*memory, tokens.length())) {
    count_created(*memory, lookup.resumable);
    if (!plan) cache_.publish_final(all, *std::move(memory));
  }
  if (plan) cache_.deprioritize(tokens.prompt(), plan->needed_later);
  memory.reset();
  pool_.take_orders();
  while (counts_bytes_ && kv_bytes() + snapshot_bytes() > budget_bytes_ && cache_.evict()) continue;
  return {.reused = lookup.resumable,
          .matched = std::min(lookup.matched, tokens.prompt_length - 1)};
}

CacheCounters TreePolicy::counters() const {
  CacheCounters counters = counters_;
  const PrefixCacheStats& stats = cache_.stats();
  counters.evictions = stats.evicted;
  counters.snapshots_created = stats.published;
  counters.kv_bytes = kv_bytes();
  counters.snapshot_bytes = snapshot_bytes();
  if (host_) counters.host_bytes = host_->bytes();
  if (counts_bytes_) return counters;
  counters.flips = pool_.usage().owner_changes;
  const PoolUsage usage = pool_.usage();
  const auto beyond = budget_bytes_ - static_cast<std::int64_t>(pool_.layout().bytes());
  counters.idle_bytes = static_cast<std::int64_t>(usage.idle_bytes + usage.remainder_bytes) +
                        std::max<std::int64_t>(beyond, 0);
  return counters;
}

models::ModelMemoryLayout superblock_pools(const ReplayShape& shape, std::int64_t budget_bytes,
                                           Precision snapshots) {
  return models::memory_layout_of(geometry_of(shape),
                                  {.pool_bytes = static_cast<std::size_t>(budget_bytes),
                                   .packed = snapshots == Precision::int8 && shape.has_state()});
}

}  // namespace hyb::app
