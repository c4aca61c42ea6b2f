#include "core/memory/eviction.h"

#include <algorithm>

#include "core/base/error.h"

namespace hyb {

double Eviction::value_of(double worth) const {
  return rule_ == EvictionRule::lru ? static_cast<double>(uses_ + 1) : level_ + worth;
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
  snapshot.value = value_of(worth);
  snapshot.added = ++uses_;
  push(snapshot);
}

void Eviction::wake(Snapshot& snapshot, double worth) {
  if (rule_ == EvictionRule::greedy_dual && !is_devalued(snapshot)) {
    snapshot.value = value_of(worth);
  }
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
  snapshot.value = value_of(worth);
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

Snapshot* Eviction::victim(const Snapshot* keep) const {
  if (heap_.empty()) return nullptr;
  if (heap_.front().snapshot != keep) return heap_.front().snapshot;
  if (heap_.size() == 1) return nullptr;
  const bool right = heap_.size() > 2 && heap_[2].goes_before(heap_[1]);
  return heap_[right ? 2 : 1].snapshot;
}

void Eviction::give_up(Snapshot& victim) {
  remove(victim);
  if (rule_ == EvictionRule::greedy_dual) level_ = std::max(level_, victim.value);
}

void Eviction::refuse(double worth) {
  if (rule_ == EvictionRule::greedy_dual) level_ = std::max(level_, value_of(worth));
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
