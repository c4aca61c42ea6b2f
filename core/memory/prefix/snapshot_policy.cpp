#include "core/memory/prefix/snapshot_policy.h"

#include "core/base/error.h"

namespace hyb {

SnapshotValue::SnapshotValue(const MemoryLayout& layout, Precision precision,
                             const PrefillCost& cost)
    : layout_(&layout),
      cost_(cost),
      state_bytes_(precision == Precision::int8 ? layout.packed.bytes : layout.slots.bytes),
      resumes_anywhere_(hyb::resumes_anywhere(layout)) {
  for (const PageGroup& group : layout.groups) {
    keeps_everything_.push_back(hyb::keeps_everything(*group.kind));
  }
}

std::size_t SnapshotValue::page_bytes(std::size_t group, const Neighborhood& neighborhood) const {
  const PageGroup& pages = layout_->groups[group];
  const std::int32_t tokens = layout_->page_tokens;
  const std::int32_t end = (neighborhood.depth + tokens - 1) / tokens;
  const std::int32_t shared =
      neighborhood.shared / tokens;  // whole pages; the one after them is private
  if (keeps_everything_[group]) return static_cast<std::size_t>(end - shared) * pages.page_bytes;

  const auto needed_by = [&](const Snapshot* snapshot, PositionRange positions) {
    return snapshot != nullptr && snapshot->node->depth >= positions.last &&
           pages.kind->needs(positions, snapshot->node->depth);
  };
  std::size_t count = 0;
  for (std::int32_t page = 0; page < end; ++page) {
    const PositionRange positions{page * tokens, std::min((page + 1) * tokens, neighborhood.depth)};
    if (!layout_->holds_page(static_cast<std::int32_t>(group), page, neighborhood.depth)) continue;
    const bool is_shared = page < shared && (needed_by(neighborhood.other, positions) ||
                                             needed_by(neighborhood.above, positions));
    if (!is_shared) ++count;
  }
  return count * pages.page_bytes;
}

std::size_t SnapshotValue::bytes(const Neighborhood& neighborhood) const {
  std::size_t bytes = state_bytes_;
  for (std::size_t group = 0; group < layout_->groups.size(); ++group) {
    bytes += page_bytes(group, neighborhood);
  }
  return bytes;
}

double SnapshotValue::seconds(const Neighborhood& neighborhood) const {
  const std::int32_t above = neighborhood.above == nullptr ? 0 : neighborhood.above->node->depth;
  return cost_.of(neighborhood.depth) - cost_.of(resumes_anywhere_ ? neighborhood.shared : above);
}

double SnapshotValue::worth(const Neighborhood& neighborhood, double use_probability) const {
  const std::size_t freed = bytes(neighborhood);
  return freed == 0 ? 0 : use_probability * seconds(neighborhood) / static_cast<double>(freed);
}

namespace {

constexpr double seldom = 0.15;            // of the other kind's rate
constexpr std::int32_t seldom_turns = 16;  // 1 request in this many
constexpr std::int32_t seen_max = 512;
constexpr std::int32_t prior_seen = 14;  // just enough unused ones for a place to be seldom

}  // namespace

SnapshotPolicy::SnapshotPolicy(PlacementPrior prior) {
  if (prior == PlacementPrior::unknown) return;
  const bool stay = prior == PlacementPrior::answers_stay;
  count(stay ? SnapshotPlace::prompt_end : SnapshotPlace::turn_end, false) = {prior_seen, 0};
  count(stay ? SnapshotPlace::turn_end : SnapshotPlace::prompt_end, false) = {1, 1};
}

SnapshotPolicy::Count& SnapshotPolicy::count(SnapshotPlace place, bool is_continued) {
  return counts_[static_cast<std::size_t>(place)][is_continued ? 1 : 0];
}

void SnapshotPolicy::remember(Count& count) {
  if (++count.seen <= seen_max) return;
  count.seen /= 2;
  count.used /= 2;
}

bool SnapshotPolicy::wants(SnapshotPlace place) {
  if (place != SnapshotPlace::prompt_end && place != SnapshotPlace::turn_end) return true;
  const SnapshotPlace other =
      place == SnapshotPlace::prompt_end ? SnapshotPlace::turn_end : SnapshotPlace::prompt_end;
  const Count& others = count(other, false);
  if (others.used == 0) return true;
  if (count(place, false).rate(0.5) >= seldom * others.rate(0)) return true;
  std::int32_t& skipped = skipped_[static_cast<std::size_t>(place)];
  if (++skipped < seldom_turns) return false;
  skipped = 0;
  return true;
}

void SnapshotPolicy::created(SnapshotPlace place) { remember(count(place, false)); }

void SnapshotPolicy::used(SnapshotPlace place, bool was_continued) {
  ++count(place, was_continued).used;
  remember(count(place, true));  // counts its chance of another use
}

double SnapshotPolicy::use_probability(SnapshotPlace place, bool is_continued) const {
  return counts_[static_cast<std::size_t>(place)][is_continued ? 1 : 0].rate(2);
}

double Eviction::value_of(double worth) const {
  return rule_ == EvictionRule::lru ? static_cast<double>(uses_ + 1) : level_ + worth;
}

void Eviction::set(Snapshot& snapshot, double worth) const {
  snapshot.value = value_of(worth);
  snapshot.worth = worth;
}

void Eviction::put(std::size_t place, const Entry& entry) {
  heap_[place] = entry;
  entry.snapshot->heap_index = static_cast<std::int32_t>(place);
}

void Eviction::rise(std::size_t place) {
  const Entry entry = heap_[place];
  while (place > 0) {
    const std::size_t parent = (place - 1) / 2;
    if (!entry.is_evicted_before(heap_[parent])) break;
    put(place, heap_[parent]);
    place = parent;
  }
  put(place, entry);
}

void Eviction::sink(std::size_t place) {
  const Entry entry = heap_[place];
  for (;;) {
    std::size_t child = 2 * place + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1].is_evicted_before(heap_[child])) ++child;
    if (!heap_[child].is_evicted_before(entry)) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, entry);
}

void Eviction::push(Snapshot& snapshot) {
  require(snapshot.heap_index < 0, "eviction: a snapshot is added once");
  heap_.push_back({snapshot.value, snapshot.added, &snapshot});
  rise(heap_.size() - 1);
}

void Eviction::add(Snapshot& snapshot, double worth) {
  set(snapshot, worth);
  snapshot.added = ++uses_;
  push(snapshot);
}

void Eviction::reinsert(Snapshot& snapshot, double worth) {
  if (rule_ == EvictionRule::greedy_dual && !is_deprioritized(snapshot)) set(snapshot, worth);
  push(snapshot);
}

void Eviction::deprioritize(Snapshot& snapshot) {
  snapshot.value = deprioritized;
  if (snapshot.heap_index < 0) return;
  const auto place = static_cast<std::size_t>(snapshot.heap_index);
  heap_[place].value = deprioritized;
  rise(place);
}

void Eviction::use(Snapshot& snapshot, double worth) {
  if (snapshot.heap_index < 0) return add(snapshot, worth);
  set(snapshot, worth);
  snapshot.added = ++uses_;
  const auto place = static_cast<std::size_t>(snapshot.heap_index);
  heap_[place] = {snapshot.value, snapshot.added, &snapshot};
  sink(place);
  rise(static_cast<std::size_t>(snapshot.heap_index));
}

void Eviction::remove(Snapshot& snapshot) {
  if (snapshot.heap_index < 0) return;
  const auto place = static_cast<std::size_t>(snapshot.heap_index);
  require(place < heap_.size() && heap_[place].snapshot == &snapshot,
          "eviction: the heap knows its places");
  const Entry last = heap_.back();
  heap_.pop_back();
  snapshot.heap_index = -1;
  if (last.snapshot == &snapshot) return;
  put(place, last);
  sink(place);
  rise(static_cast<std::size_t>(last.snapshot->heap_index));
}

/// Below an entry that may go is none that goes before it.
void Eviction::look(std::size_t place, const Snapshot* keep, Victims& victims) const {
  if (place >= heap_.size()) return;
  const Entry& entry = heap_[place];
  if (victims.least != nullptr && victims.least->is_evicted_before(entry)) return;
  Snapshot* const snapshot = entry.snapshot;
  if (snapshot != keep && snapshot->pinned == 0) {
    victims.least = &entry;
    return;
  }
  Snapshot*& last = victims.last_pinned;
  if (snapshot != keep && (last == nullptr || snapshot->pinned > last->pinned)) last = snapshot;
  look(2 * place + 1, keep, victims);
  look(2 * place + 2, keep, victims);
}

Snapshot* Eviction::victim(const Snapshot* keep) const {
  Victims victims;
  look(0, keep, victims);
  return victims.least != nullptr ? victims.least->snapshot : victims.last_pinned;
}

void Eviction::give_up(Snapshot& victim) {
  remove(victim);
  if (rule_ == EvictionRule::greedy_dual) level_ = std::max(level_, victim.value);
}

void Eviction::refuse(double worth) {
  if (rule_ == EvictionRule::greedy_dual) level_ = std::max(level_, value_of(worth));
}

void Eviction::reweigh(double scale, const std::function<double(const Snapshot&)>& worth) {
  require(scale > 0, "eviction: a second is worth something");
  if (rule_ == EvictionRule::lru) return;
  level_ *= scale;
  for (const Entry& entry : heap_) {
    if (is_deprioritized(*entry.snapshot)) continue;
    entry.snapshot->value *= scale;
    entry.snapshot->worth *= scale;
  }
  for (Entry& entry : heap_) {
    Snapshot& snapshot = *entry.snapshot;
    if (is_deprioritized(snapshot)) continue;
    const double now = worth(snapshot);
    snapshot.value += now - snapshot.worth;
    snapshot.worth = now;
    entry.value = snapshot.value;
  }
  for (std::size_t place = heap_.size() / 2; place-- > 0;) sink(place);
}

void Eviction::audit() const {
  for (std::size_t place = 0; place < heap_.size(); ++place) {
    const Entry& entry = heap_[place];
    require(entry.snapshot->heap_index == static_cast<std::int32_t>(place) &&
                entry.snapshot->value == entry.value,
            "eviction: a snapshot knows its place and its value");
    require(place == 0 || !entry.is_evicted_before(heap_[(place - 1) / 2]),
            "eviction: an entry is not evicted before its parent in the heap");
  }
}

}  // namespace hyb
