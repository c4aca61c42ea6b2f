#include "core/memory/eviction.h"

#include <algorithm>

#include "core/base/error.h"

namespace hyb {

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
    if (!entry.goes_before(heap_[parent])) break;
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
    if (child + 1 < heap_.size() && heap_[child + 1].goes_before(heap_[child])) ++child;
    if (!heap_[child].goes_before(entry)) break;
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

void Eviction::wake(Snapshot& snapshot, double worth) {
  if (rule_ == EvictionRule::greedy_dual && !is_devalued(snapshot)) set(snapshot, worth);
  push(snapshot);
}

void Eviction::devalue(Snapshot& snapshot) {
  snapshot.value = devalued;
  if (snapshot.heap_index < 0) return;
  const auto place = static_cast<std::size_t>(snapshot.heap_index);
  heap_[place].value = devalued;
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
  if (victims.least != nullptr && victims.least->goes_before(entry)) return;
  Snapshot* const snapshot = entry.snapshot;
  if (snapshot != keep && snapshot->awaited == 0) {
    victims.least = &entry;
    return;
  }
  Snapshot*& last = victims.last_awaited;
  if (snapshot != keep && (last == nullptr || snapshot->awaited > last->awaited)) last = snapshot;
  look(2 * place + 1, keep, victims);
  look(2 * place + 2, keep, victims);
}

Snapshot* Eviction::victim(const Snapshot* keep) const {
  Victims victims;
  look(0, keep, victims);
  return victims.least != nullptr ? victims.least->snapshot : victims.last_awaited;
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
    if (is_devalued(*entry.snapshot)) continue;
    entry.snapshot->value *= scale;
    entry.snapshot->worth *= scale;
  }
  for (Entry& entry : heap_) {
    Snapshot& snapshot = *entry.snapshot;
    if (is_devalued(snapshot)) continue;
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
    require(place == 0 || !entry.goes_before(heap_[(place - 1) / 2]),
            "eviction: nothing goes before what is above it");
  }
}

}  // namespace hyb
