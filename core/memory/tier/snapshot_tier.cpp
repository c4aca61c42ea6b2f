#include "core/memory/tier/snapshot_tier.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/file.h"

namespace hyb {
namespace {

/// Room for a state and the pages before it.
std::size_t staging_bytes_for(const MemoryLayout& layout, std::size_t wanted) {
  std::size_t largest = 0;
  for (std::int32_t view = 0; view < layout.views(); ++view) {
    largest = std::max(largest, layout.unit_bytes(ViewId{view}));
  }
  return std::max(wanted, largest + largest / 2);
}

/// Units of one fetch whose copies start between two steps: each takes a card's driver microseconds
/// for every layer.
constexpr std::size_t writes_per_step_max = 32;

template <typename Fetches>
auto find_fetch(Fetches& fetches, FetchId id) {
  return std::find_if(fetches.begin(), fetches.end(),
                      [&](const TierFetch& fetch) { return fetch.id == id; });
}

/// Removes an entry of whose new units those from `first` on have room and no bytes. These are
/// forgotten: other entries may need them too.
void remove_unwritten(TierIndex& index, TierEntry& entry, std::span<StoredUnit* const> units,
                      const std::vector<bool>& is_new, std::size_t first) {
  for (std::size_t i = first; i < units.size(); ++i) {
    if (is_new[i]) index.forget(*units[i]);
  }
  index.remove(entry);
}

}  // namespace

SnapshotTier::SnapshotTier(std::string name, const SnapshotIo& snapshot_io,
                           std::unique_ptr<Storage> storage, const TierOptions& options)
    : name_(std::move(name)),
      snapshot_io_(snapshot_io),
      options_(options),
      index_(std::in_place, snapshot_io.layout(), options.limits),
      queue_(std::make_unique<TransferQueue>(
          std::move(storage), staging_bytes_for(snapshot_io.layout(), options.staging_bytes),
          options.worker)) {}

void SnapshotTier::switch_off(std::string_view why) {
  log::warning(name_ + ": off from here on: " + std::string(why));
  fetches_.clear();
  stats_.removed = index_->evicted();
  index_.reset();
  queue_.reset();
}

void SnapshotTier::notice_failure() {
  if (!is_on()) return;
  const std::string why = queue_->failure();
  if (!why.empty()) switch_off(why);
}

/// False: steps would have to wait for the copy.
bool SnapshotTier::store(StoredUnit& unit, const CheckpointUnit& source) {
  const std::size_t bytes = snapshot_io_.layout().unit_bytes(unit.view);
  if (std::unique_ptr<PendingBytes> copy = snapshot_io_.start_read(source)) {
    unit.written = queue_->write(unit.extents, std::move(copy));
  } else if (options_.may_wait) {
    unit.written = queue_->write(unit.extents, bytes, [&](std::span<std::byte> buffer) {
      snapshot_io_.read(source, buffer);
    });
  } else {
    return false;
  }
  stats_.bytes_written += bytes;
  return true;
}

void SnapshotTier::spill(std::span<const TokenId> key, const Snapshot& snapshot) {
  notice_failure();
  if (!is_on()) return;
  const Checkpoint& checkpoint = snapshot.checkpoint;
  key = key.first(static_cast<std::size_t>(checkpoint.length()));
  const Precision precision = checkpoint.precision();
  TierEntry* const there = index_->find(key, precision);
  if (there != nullptr && TierIndex::is_whole(index_->units(*there))) {
    index_->touch(*there);
    ++stats_.held;
    return;
  }
  // Evicted before the step that makes its bytes: rare, and no great loss.
  if (!snapshot_io_.has_bytes(checkpoint)) {
    ++stats_.declined;
    return;
  }
  // An entry that lost a unit to damage gets it back.
  TierEntry& entry = there ? *there : index_->add(key, precision, snapshot.place);
  const std::vector<StoredUnit*> units = index_->units(entry);
  std::vector<bool> is_new;
  for (StoredUnit* const unit : units) is_new.push_back(unit->extents.empty());
  const std::vector<CheckpointUnit> sources = units_of(checkpoint, snapshot_io_.layout());
  require(sources.size() == units.size(), "tier: a checkpoint has the units of its kinds");
  if (!index_->admit(entry)) {
    ++stats_.declined;
    return;
  }
  std::size_t stored = 0;
  try {
    while (stored < units.size() && (!is_new[stored] || store(*units[stored], sources[stored]))) {
      ++stored;
    }
  } catch (...) {
    remove_unwritten(*index_, entry, units, is_new, stored);
    throw;
  }
  if (stored < units.size()) {
    remove_unwritten(*index_, entry, units, is_new, stored);
    ++stats_.late;
    return;
  }
  ++stats_.spilled;
}

TierStats SnapshotTier::stats() const {
  TierStats stats = stats_;
  if (is_on()) {
    stats.removed = index_->evicted();
    stats.bytes_used = index_->bytes_used();
  }
  return stats;
}

void SnapshotTier::audit() const {
  if (!is_on()) return;
  index_->audit();
  for (const TierFetch& fetch : fetches_) {
    require(fetch.units_come <= fetch.units.size(), "tier: no more arrives than was requested");
  }
}

TierAnswer SnapshotTier::ask(std::span<const TokenId> prompt, std::int32_t resumable) {
  notice_failure();
  if (!is_on() || prompt.empty()) return {};
  const TierHit hit = index_->match(prompt, static_cast<std::int32_t>(prompt.size()) - 1);
  if (hit.length <= resumable) return {};
  const auto key = prompt.first(static_cast<std::size_t>(hit.length));
  for (const TierFetch& other : fetches_) {
    const bool is_same = other.precision == hit.precision &&
                         std::equal(key.begin(), key.end(), other.key.begin(), other.key.end());
    if (is_same) return {.fetch = other.id};
  }
  const auto units = index_->worth_reading(hit, snapshot_io_.shared_tokens(key), resumable);
  if (!units) return {};
  TierFetch fetch;
  fetch.writes_beside = snapshot_io_.can_stage_writes();
  if (!fetch.writes_beside && !fetches_.empty() && !queue_->can_read(index_->bytes_of(*units))) {
    return {.fetch = std::nullopt, .is_full = true};
  }
  fetch.id = FetchId{asked_++};
  fetch.key.assign(key.begin(), key.end());
  fetch.precision = hit.precision;
  fetch.place = hit.place;
  start(fetch, *units);
  // Others have all the room for copies beside steps: with none of its own this one would hold up
  // nothing.
  if (fetch.writes_beside && fetch.units.empty() && !units->empty() && !fetches_.empty()) {
    return {.fetch = std::nullopt, .is_full = true};
  }
  fetches_.push_back(std::move(fetch));
  return {.fetch = fetches_.back().id};
}

/// False: there is no room for a copy beside steps.
bool SnapshotTier::read(TierFetch& fetch, const StoredUnit& unit) {
  const std::size_t bytes = snapshot_io_.layout().unit_bytes(unit.view);
  std::unique_ptr<StagedWrite> staged =
      fetch.writes_beside ? snapshot_io_.stage_write(unit.view) : nullptr;
  if (fetch.writes_beside && staged == nullptr) return false;
  const TransferId transfer =
      staged ? queue_->read(unit.extents, staged->room()) : queue_->read(unit.extents, bytes);
  fetch.units.push_back({.view = unit.view,
                         .page = unit.page,
                         .written = unit.written,
                         .transfer = transfer,
                         .staged = std::move(staged)});
  stats_.bytes_read += bytes;
  return true;
}

/// Requests as much as there are buffers for; the rest is read later.
void SnapshotTier::start(TierFetch& fetch, std::span<StoredUnit* const> units) {
  for (StoredUnit* const unit : units) {
    if (!fetch.writes_beside && !queue_->can_read(snapshot_io_.layout().unit_bytes(unit->view)))
      return;
    if (!read(fetch, *unit)) return;
  }
}

bool SnapshotTier::is_pending(FetchId fetch) const {
  return find_fetch(fetches_, fetch) != fetches_.end();
}

bool SnapshotTier::advance(FetchId id) {
  notice_failure();
  const auto found = find_fetch(fetches_, id);
  if (found == fetches_.end()) return false;
  if (!found->writes_beside) return have_all_come(*found);
  // Off the list, which is cleared where the storage fails while others are evicted for this one.
  Taken taken{.tier = this, .fetch = std::move(*found)};
  fetches_.erase(found);
  const bool is_ready = write_beside(taken.fetch);
  if (!is_on()) return false;
  fetches_.push_back(std::move(taken.fetch));
  return is_ready;
}

/// All that was requested.
bool SnapshotTier::have_all_come(TierFetch& fetch) const {
  std::size_t& come = fetch.units_come;
  while (come < fetch.units.size() && queue_->outcome(fetch.units[come].transfer)) ++come;
  return come == fetch.units.size();
}

/// True: the fetch has an end, or all units are in the pool.
bool SnapshotTier::write_beside(TierFetch& fetch) {
  if (fetch.end) return true;
  const bool have_come = have_all_come(fetch);
  if (!fetch.room) {
    if (!have_come) return false;
    if (!is_whole(fetch)) return end_as_damaged(fetch);
    if (!reserve(fetch)) return fetch.end.has_value();
  }
  std::vector<TierFetch::Unit>& units = fetch.units;
  const std::size_t starts_end =
      std::min(fetch.units_come, fetch.units_started + writes_per_step_max);
  for (; fetch.units_started < starts_end; ++fetch.units_started) {
    const TierFetch::Unit& unit = units[fetch.units_started];
    if (queue_->outcome(unit.transfer) != true) return end_as_damaged(fetch);
    unit.staged->start(unit.view, unit.target);
  }
  std::size_t written = 0;
  while (written < fetch.units_started && units[written].staged->is_done()) {
    queue_->release(units[written++].transfer);
  }
  units.erase(units.begin(), units.begin() + static_cast<std::ptrdiff_t>(written));
  fetch.units_come -= written;
  fetch.units_started -= written;
  if (!read_rest(fetch)) fetch.end = FetchEnd::lost;
  return fetch.end.has_value() || (units.empty() && fetch.rest.empty());
}

bool SnapshotTier::end_as_damaged(TierFetch& fetch) {
  forget_damaged(fetch);
  fetch.end = FetchEnd::damaged;
  return true;
}

/// Room in the pool for what was read, and for the rest. False: the fetch has an end, or is lost
/// with all others.
bool SnapshotTier::reserve(TierFetch& fetch) {
  if (snapshot_io_.has(fetch.key)) {
    fetch.end = FetchEnd::adopted;
    return false;
  }
  std::optional<Reservation> room = snapshot_io_.make_room(fetch.key, fetch.precision);
  if (!is_on()) return false;
  if (!room) {
    fetch.end = FetchEnd::lost;
    return false;
  }
  snapshot_io_.flush_orders();
  const std::vector<CheckpointUnit> targets = units_of(room->checkpoint, snapshot_io_.layout());
  std::vector<TierFetch::Unit> come = std::exchange(fetch.units, {});
  auto next = come.begin();  // they are in the order of the targets
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const bool has_come =
        next != come.end() && next->view == targets[i].view && next->page == targets[i].page;
    if (has_come && room->is_shared[i]) {
      queue_->release(next->transfer);
    } else if (has_come) {
      next->target = targets[i].unit;
      fetch.units.push_back(std::move(*next));
    } else if (!room->is_shared[i]) {
      fetch.rest.push_back(targets[i]);
    }
    if (has_come) ++next;
  }
  require(next == come.end(), "tier: a checkpoint has the units of its kinds");
  fetch.units_come = fetch.units.size();
  fetch.room = snapshot_io_.pin(*std::move(room));
  return true;
}

/// Requests of the rest what there is room for. False: it is no longer stored.
bool SnapshotTier::read_rest(TierFetch& fetch) {
  if (fetch.rest.empty()) return true;
  const std::vector<StoredUnit*> now = units_now(fetch);
  if (now.empty() || !TierIndex::is_whole(now)) return false;
  std::size_t asked = 0;
  for (auto unit = now.begin(); asked < fetch.rest.size(); ++asked) {
    const CheckpointUnit& target = fetch.rest[asked];
    unit = std::find_if(unit, now.end(), [&](const StoredUnit* other) {  // in the same order
      return other->view == target.view && other->page == target.page;
    });
    require(unit != now.end(), "tier: a checkpoint has the units of its kinds");
    if (!read(fetch, **unit)) break;
    fetch.units.back().target = target.unit;
  }
  fetch.rest.erase(fetch.rest.begin(), fetch.rest.begin() + static_cast<std::ptrdiff_t>(asked));
  return true;
}

void SnapshotTier::drop_arriving() {
  std::vector<FetchId> fetches;
  for (const TierFetch& fetch : fetches_) {
    if (fetch.room) fetches.push_back(fetch.id);
  }
  for (const FetchId fetch : fetches) drop(fetch);
}

std::vector<const Checkpoint*> SnapshotTier::arriving() const {
  std::vector<const Checkpoint*> checkpoints;
  for (const TierFetch& fetch : fetches_) {
    if (fetch.room) checkpoints.push_back(&fetch.room->checkpoint());
  }
  return checkpoints;
}

void SnapshotTier::release(const TierFetch& fetch) {
  if (!is_on()) return;
  for (const TierFetch::Unit& unit : fetch.units) queue_->release(unit.transfer);
}

void SnapshotTier::drop(FetchId id) {
  const auto fetch = find_fetch(fetches_, id);
  if (fetch == fetches_.end()) return;
  const Taken taken{.tier = this, .fetch = std::move(*fetch)};
  fetches_.erase(fetch);
  ++stats_.dropped;
}

void SnapshotTier::wait() {
  if (!is_on()) return;
  if (queue_->is_busy()) return queue_->wait();
  for (const TierFetch& fetch : fetches_) {
    if (fetch.units_started > 0) return fetch.units.front().staged->wait();
  }
}

void SnapshotTier::drain() {
  if (is_on()) queue_->drain();
  notice_failure();
}

void SnapshotTier::run_transfers(std::size_t count) {
  if (is_on()) queue_->run(count);
}

/// The units as the index has them now; empty: the snapshot is no longer there.
std::vector<StoredUnit*> SnapshotTier::units_now(const TierFetch& fetch) const {
  if (TierEntry* const entry = index_->find(fetch.key, fetch.precision)) {
    return index_->units(*entry);
  }
  const auto length = static_cast<std::int32_t>(fetch.key.size());
  TierHit hit = index_->match(fetch.key, length);
  return hit.length == length && hit.entry == nullptr ? std::move(hit.units)
                                                      : std::vector<StoredUnit*>{};
}

bool SnapshotTier::is_whole(const TierFetch& fetch) const {
  return std::all_of(fetch.units.begin(), fetch.units.end(), [&](const TierFetch::Unit& unit) {
    return queue_->outcome(unit.transfer) == true;
  });
}

/// No snapshot with a damaged unit is whole after this, so none is tried again. A unit that was
/// rewritten meanwhile stays.
void SnapshotTier::forget_damaged(const TierFetch& fetch) {
  const std::vector<StoredUnit*> now = units_now(fetch);
  for (const TierFetch::Unit& unit : fetch.units) {
    if (queue_->outcome(unit.transfer) != false) continue;
    ++(queue_->is_unwritten(unit.transfer) ? stats_.late : stats_.damaged);
    for (StoredUnit* const there : now) {
      const bool is_same =
          there->view == unit.view && there->page == unit.page && there->written == unit.written;
      if (is_same) index_->forget(*there);
    }
  }
}

/// Writes what has arrived to the units of the room; false: the rest could not be read.
bool SnapshotTier::fill(TierFetch& fetch, const Reservation& room) {
  const std::vector<CheckpointUnit> targets = units_of(room.checkpoint, snapshot_io_.layout());
  std::vector<CheckpointUnit> rest;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (room.is_shared[i]) continue;
    const auto come =
        std::find_if(fetch.units.begin(), fetch.units.end(), [&](const TierFetch::Unit& unit) {
          return unit.view == targets[i].view && unit.page == targets[i].page;
        });
    if (come == fetch.units.end()) {
      rest.push_back(targets[i]);
    } else {
      snapshot_io_.write(targets[i], queue_->bytes(come->transfer));
    }
  }
  release(fetch);
  fetch.units.clear();
  return rest.empty() || fill_rest(fetch, rest);
}

/// Reads and writes what had no room in the buffers, or was shared with a snapshot that is gone,
/// one unit after the other, as far ahead as there are buffers. False: units that were read and not
/// written are left in the fetch.
bool SnapshotTier::fill_rest(TierFetch& fetch, std::span<const CheckpointUnit> rest) {
  const std::vector<StoredUnit*> now = units_now(fetch);
  if (now.empty() || !TierIndex::is_whole(now)) return false;
  std::size_t asked = 0;
  for (std::size_t written = 0; written < rest.size(); ++written) {
    for (; asked < rest.size(); ++asked) {
      const CheckpointUnit& target = rest[asked];
      const std::size_t bytes = snapshot_io_.layout().unit_bytes(target.view);
      if (asked > written && !queue_->can_read(bytes)) break;
      const auto unit = std::find_if(now.begin(), now.end(), [&](const StoredUnit* other) {
        return other->view == target.view && other->page == target.page;
      });
      require(unit != now.end(), "tier: a checkpoint has the units of its kinds");
      read(fetch, **unit);
    }
    const TransferId first = fetch.units.front().transfer;
    queue_->wait_for(first);
    if (queue_->outcome(first) != true) return false;
    snapshot_io_.write(rest[written], queue_->bytes(first));
    queue_->release(first);
    fetch.units.erase(fetch.units.begin());
  }
  return true;
}

FetchEnd SnapshotTier::deliver(FetchId id) {
  for (;;) {
    const auto waiting = find_fetch(fetches_, id);
    if (waiting == fetches_.end()) return FetchEnd::lost;
    if (!waiting->writes_beside || advance(id)) break;
    wait();
  }
  const auto found = find_fetch(fetches_, id);
  Taken taken{.tier = this, .fetch = std::move(*found)};
  TierFetch& fetch = taken.fetch;
  fetches_.erase(found);
  if (fetch.end) return *fetch.end;
  if (fetch.writes_beside) return adopt(fetch, fetch.room->take());
  for (const TierFetch::Unit& unit : fetch.units) queue_->wait_for(unit.transfer);
  notice_failure();
  if (!is_on()) return FetchEnd::lost;
  if (!is_whole(fetch)) {
    forget_damaged(fetch);
    return FetchEnd::damaged;
  }
  if (snapshot_io_.has(fetch.key)) return FetchEnd::adopted;
  std::optional<Reservation> room = snapshot_io_.make_room(fetch.key, fetch.precision);
  // The storage may have failed while evicted snapshots were written to it.
  if (!room || !is_on()) return FetchEnd::lost;
  snapshot_io_.flush_orders();
  if (!fill(fetch, *room)) {
    notice_failure();
    if (!is_on() || fetch.units.empty()) return FetchEnd::lost;
    forget_damaged(fetch);
    return FetchEnd::damaged;
  }
  return adopt(fetch, std::move(room->checkpoint));
}

FetchEnd SnapshotTier::adopt(const TierFetch& fetch, Checkpoint checkpoint) {
  if (!snapshot_io_.adopt(fetch.key, std::move(checkpoint), fetch.place, options_.source)) {
    return FetchEnd::lost;
  }
  if (TierEntry* const entry = index_->find(fetch.key, fetch.precision)) {
    index_->touch(*entry);
  }
  ++stats_.fetched;
  stats_.tokens_fetched += static_cast<std::int64_t>(fetch.key.size());
  return FetchEnd::adopted;
}

std::int32_t SnapshotTier::fetch(std::span<const TokenId> prompt, std::int32_t resumable) {
  for (;;) {
    const TierAnswer answer = ask(prompt, resumable);
    if (answer.is_full) {
      wait();
      continue;
    }
    if (!answer.fetch) return 0;
    while (is_pending(*answer.fetch) && !advance(*answer.fetch)) wait();
    const auto fetch = find_fetch(fetches_, *answer.fetch);
    if (fetch == fetches_.end()) return 0;
    const auto length = static_cast<std::int32_t>(fetch->key.size());
    const FetchEnd end = deliver(*answer.fetch);
    if (end != FetchEnd::damaged) return end == FetchEnd::adopted ? length : 0;
  }
}

}  // namespace hyb
