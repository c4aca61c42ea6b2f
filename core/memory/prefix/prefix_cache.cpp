#include "core/memory/prefix/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hyb {
namespace {

/// Without recurrent layers there is nothing to pack.
PrefixCacheOptions checked(PrefixCacheOptions options, const MemoryLayout& layout) {
  if (layout.slots.per_superblock == 0) options.precision = Precision::exact;
  require(options.precision == Precision::exact || layout.packed.per_superblock > 0,
          "prefix cache: int8 snapshots need a layout with packed ones");
  return options;
}

}  // namespace

PrefixCacheStats& PrefixCacheStats::operator+=(const PrefixCacheStats& more) {
  lookups += more.lookups;
  hits += more.hits;
  tokens_matched += more.tokens_matched;
  tokens_resumed += more.tokens_resumed;
  published += more.published;
  refused += more.refused;
  evicted += more.evicted;
  bytes_evicted += more.bytes_evicted;
  pages_merged += more.pages_merged;
  return *this;
}

PrefixCache::PrefixCache(MemoryPool& pool, const PrefixCacheOptions& options)
    : pool_(&pool),
      options_(checked(options, pool.layout())),
      history_(options.seen_tokens_max),
      policy_(options.placement),
      value_(pool.layout(), options_.precision, options.cost),
      eviction_(options.eviction) {}

Lookup PrefixCache::look_up(std::span<const TokenId> prompt) const {
  if (!options_.enabled || prompt.empty()) return {};
  const auto limit = static_cast<std::int32_t>(prompt.size()) - 1;
  return tree_.look_up(prompt, limit, pool_->layout());
}

std::optional<Memory> PrefixCache::resume(const Lookup& lookup) {
  Snapshot* const snapshot = lookup.snapshot;
  std::optional<Memory> memory =
      snapshot == nullptr ? pool_->start() : pool_->resume(snapshot->checkpoint, lookup.resumable);
  if (!memory || !options_.enabled) return memory;
  ++stats_.lookups;
  stats_.tokens_matched += lookup.matched;
  stats_.tokens_resumed += lookup.resumable;
  if (snapshot == nullptr) return memory;
  ++stats_.hits;
  policy_.used(snapshot->place, snapshot->continued);
  snapshot->used = true;
  snapshot->source = SnapshotSource::memory;
  snapshot->continued = true;
  const Neighborhood neighborhood = tree_.neighborhood(*snapshot);
  eviction_.use(*snapshot, worth(neighborhood, snapshot->place, true));
  return memory;
}

/// Returns where the prompt branches off an earlier one. Four prompts are remembered per snapshot:
/// branches that recur later than that evict each other from the tree.
std::int32_t PrefixCache::remember(std::span<const TokenId> prompt) {
  constexpr std::int32_t prompts_per_snapshot = 4, prompts_min = 16;
  const std::int32_t prompts = std::max(prompts_min, prompts_per_snapshot * tree_.size());
  return history_.remember(prompt, static_cast<std::size_t>(prompts));
}

std::vector<Cut> PrefixCache::cuts(const Lookup& lookup, std::span<const TokenId> prompt,
                                   std::span<const std::int32_t> message_ends) {
  std::vector<Cut> cuts;
  if (!options_.enabled || prompt.empty() || value_.resumes_anywhere()) return cuts;
  const auto last = static_cast<std::int32_t>(prompt.size()) - 1;
  const std::int32_t branch = std::min(std::max(lookup.matched, remember(prompt)), last);
  if (branch - lookup.resumable >= options_.branch_tokens_min) {
    cuts.push_back({branch, SnapshotPlace::branch});
  }
  for (const std::int32_t end : message_ends) cuts.push_back({end, SnapshotPlace::message_end});
  if (policy_.wants(SnapshotPlace::prompt_end)) {
    cuts.push_back({last, SnapshotPlace::prompt_end});
  }
  std::erase_if(
      cuts, [&](const Cut& cut) { return cut.length <= lookup.resumable || cut.length > last; });
  // Of several reasons for one position the first one above counts.
  std::stable_sort(cuts.begin(), cuts.end(),
                   [](const Cut& a, const Cut& b) { return a.length < b.length; });
  const auto same = [](const Cut& a, const Cut& b) { return a.length == b.length; };
  cuts.erase(std::unique(cuts.begin(), cuts.end(), same), cuts.end());
  return cuts;
}

double PrefixCache::worth(const Neighborhood& neighborhood, SnapshotPlace place,
                          bool continued) const {
  return worth(neighborhood, place, continued, eviction_.level());
}

double PrefixCache::worth(const Neighborhood& neighborhood, SnapshotPlace place, bool continued,
                          double level) const {
  const double probability = policy_.use_probability(place, continued);
  double worth = value_.worth(neighborhood, probability);
  if (options_.eviction == EvictionRule::lru || value_.resumes_anywhere()) return worth;
  // A snapshot above that is evicted before this one does not help when this one is missed. More
  // than a few in a row make no difference.
  constexpr int above_max = 16;
  Neighborhood rest = neighborhood;
  for (int skipped = 0; rest.above != nullptr && skipped < above_max; ++skipped) {
    if (rest.above->value >= level + worth) break;
    rest = tree_.without_above(rest);
    worth = value_.worth(rest, probability);
  }
  return worth;
}

/// There is one already, or a deeper one can be resumed there as well.
bool PrefixCache::is_covered(const Neighborhood& neighborhood) const {
  if (neighborhood.here != nullptr) return true;
  return value_.resumes_anywhere() && neighborhood.shared == neighborhood.depth;
}

/// Evicts a snapshot that is worth less. False: there is none.
bool PrefixCache::make_room(double worth, const Snapshot* keep) {
  Snapshot* const next = victim(keep);
  if (next == nullptr) return false;
  if (next->value >= eviction_.value_of(worth)) {
    eviction_.refuse(worth);
    ++stats_.refused;
    return false;
  }
  give_up(*next);
  return true;
}

/// Two sequences that ran the same tokens at the same time have a copy each until one of them is
/// published.
void PrefixCache::merge_pages(const Neighborhood& neighborhood, Memory& memory) {
  if (!options_.pages_are_exact || was_packed_) return;
  const Snapshot* const other =
      neighborhood.here != nullptr ? neighborhood.here : neighborhood.other;
  if (other == nullptr) return;
  const std::int32_t tokens =
      neighborhood.here != nullptr ? neighborhood.depth : neighborhood.shared;
  stats_.pages_merged += memory.share_full_pages(other->checkpoint, tokens);
}

Snapshot& PrefixCache::add(std::span<const TokenId> key, Checkpoint checkpoint,
                           SnapshotPlace place) {
  was_packed_ = was_packed_ || checkpoint.packed() != no_packed;
  Snapshot* const snapshot = tree_.insert(key, std::move(checkpoint), place);
  require(snapshot != nullptr, "prefix cache: one snapshot per position");
  policy_.created(place);
  eviction_.add(*snapshot, worth(tree_.neighborhood(*snapshot), place, false));
  ++stats_.published;
  return *snapshot;
}

bool PrefixCache::publish(std::span<const TokenId> key, Memory& memory, SnapshotPlace place) {
  const auto length = static_cast<std::size_t>(memory.length());
  require(length <= key.size(), "prefix cache: the key has all tokens of the memory");
  if (!options_.enabled || length == 0) return false;
  const auto tokens = key.first(length);
  const Neighborhood neighborhood = tree_.neighborhood(tokens);
  merge_pages(neighborhood, memory);
  if (is_covered(neighborhood)) return false;
  const double expected = worth(neighborhood, place, false);
  std::optional<Checkpoint> checkpoint = memory.checkpoint(options_.precision);
  while (!checkpoint) {
    if (!make_room(expected, neighborhood.above)) return false;
    checkpoint = memory.checkpoint(options_.precision);
  }
  add(tokens, std::move(*checkpoint), place);
  return true;
}

bool PrefixCache::publish_final(std::span<const TokenId> key, Memory memory, SnapshotPlace place) {
  const auto length = static_cast<std::size_t>(memory.length());
  require(length <= key.size(), "prefix cache: the key has all tokens of the memory");
  if (!options_.enabled || length == 0) return false;
  if (!policy_.wants(place)) return false;
  if (options_.precision == Precision::int8) {
    return publish(key, memory, place);
  }
  const auto tokens = key.first(length);
  const Neighborhood neighborhood = tree_.neighborhood(tokens);
  if (is_covered(neighborhood)) return false;
  merge_pages(neighborhood, memory);
  std::optional<Checkpoint> checkpoint = std::move(memory).final_checkpoint(options_.precision);
  if (!checkpoint) return false;
  add(tokens, std::move(*checkpoint), place);
  return true;
}

bool PrefixCache::insert(std::span<const TokenId> key, Checkpoint checkpoint, SnapshotPlace place,
                         SnapshotSource source) {
  if (!options_.enabled || key.empty() || is_covered(tree_.neighborhood(key))) return false;
  add(key, std::move(checkpoint), place).source = source;
  return true;
}

/// A snapshot that would free nothing stays outside the heap until that changes.
Snapshot* PrefixCache::victim(const Snapshot* keep) {
  for (;;) {
    Snapshot* const next = eviction_.victim(keep);
    if (next == nullptr || !value_.resumes_anywhere()) return next;
    if (value_.bytes(tree_.neighborhood(*next)) > 0) return next;
    eviction_.remove(*next);
  }
}

void PrefixCache::pin(std::span<Snapshot* const> snapshots) {
  for (Snapshot* const snapshot : pinned_) snapshot->pinned = 0;
  pinned_.clear();
  for (Snapshot* const snapshot : snapshots) {
    if (snapshot->pinned > 0) continue;
    pinned_.push_back(snapshot);
    snapshot->pinned = static_cast<std::int32_t>(pinned_.size());
  }
}

void PrefixCache::erase(Snapshot& snapshot) {
  if (snapshot.pinned > 0) std::erase(pinned_, &snapshot);
  tree_.erase(snapshot);
}

void PrefixCache::give_up(Snapshot& victim) {
  const Neighborhood neighborhood = tree_.neighborhood(victim);
  if (on_evict_ && !Eviction::is_deprioritized(victim)) on_evict_(PrefixTree::key(victim), victim);
  ++stats_.evicted;
  stats_.bytes_evicted += static_cast<std::int64_t>(value_.bytes(neighborhood));
  eviction_.give_up(victim);
  erase(victim);
  settle(neighborhood);
}

/// After a snapshot with this neighborhood is gone.
void PrefixCache::settle(const Neighborhood& neighborhood) {
  Snapshot* const above = neighborhood.above;
  if (above == nullptr || !above->node->children.empty()) return;
  above->continued = false;
  if (above->heap_index >= 0) return;
  eviction_.reinsert(*above, worth(tree_.neighborhood(*above), above->place, false));
}

bool PrefixCache::evict(const Snapshot* keep) {
  Snapshot* const next = victim(keep);
  if (next == nullptr) return false;
  give_up(*next);
  return true;
}

void PrefixCache::set_cost(const PrefillCost& cost) {
  constexpr std::int32_t length = 4096;  // at which the old and the new cost are compared
  const double scale = cost.of(length) / options_.cost.of(length);
  options_.cost = cost;
  value_.set_cost(cost);
  eviction_.reweigh(scale, [this](const Snapshot& snapshot) {
    const double level = snapshot.value - snapshot.worth;  // when it was made or used
    return worth(tree_.neighborhood(snapshot), snapshot.place, snapshot.continued, level);
  });
}

void PrefixCache::clear() {
  for (Snapshot* const snapshot : tree_.snapshots()) {
    eviction_.remove(*snapshot);
    erase(*snapshot);
  }
}

void PrefixCache::drop_lost(const std::function<bool(const Checkpoint&)>& is_lost) {
  for (Snapshot* const snapshot : tree_.snapshots()) {
    if (!is_lost(snapshot->checkpoint)) continue;
    const Neighborhood neighborhood = tree_.neighborhood(*snapshot);
    eviction_.remove(*snapshot);
    erase(*snapshot);
    settle(neighborhood);
  }
}

std::vector<const Checkpoint*> PrefixCache::checkpoints() const {
  std::vector<const Checkpoint*> checkpoints;
  for (const Snapshot* snapshot : tree_.snapshots()) checkpoints.push_back(&snapshot->checkpoint);
  return checkpoints;
}

void PrefixCache::audit() const {
  tree_.audit();
  eviction_.audit();
  std::size_t in_heap = 0;
  for (Snapshot* const snapshot : tree_.snapshots()) {
    if (snapshot->heap_index >= 0) {
      ++in_heap;
      continue;
    }
    require(value_.bytes(tree_.neighborhood(*snapshot)) == 0,
            "prefix cache: what is not in the heap frees nothing");
  }
  require(in_heap == eviction_.size(), "prefix cache: the heap holds snapshots of the tree");
}

std::vector<Cut> PrefixCache::cuts_at(const Lookup& lookup, std::span<const TokenId> prompt,
                                      std::span<const std::int32_t> lengths) const {
  std::vector<Cut> cuts;
  if (!options_.enabled) return cuts;
  for (const std::int32_t length : lengths) {
    if (length - lookup.resumable < options_.branch_tokens_min) continue;
    if (length >= static_cast<std::int32_t>(prompt.size())) break;
    cuts.push_back({length, SnapshotPlace::branch});
  }
  return cuts;
}

void PrefixCache::deprioritize(std::span<const TokenId> key, std::int32_t tokens) {
  for (Snapshot* const snapshot : tree_.on_the_way(key)) {
    if (snapshot->node->depth > tokens) eviction_.deprioritize(*snapshot);
  }
}

}  // namespace hyb
