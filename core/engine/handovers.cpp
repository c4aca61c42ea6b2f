#include "core/engine/handovers.h"

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <limits>
#include <utility>

#include "core/base/error.h"

namespace hyb {
namespace {

std::int64_t bytes_of(std::span<const UnitMove> moves, const MemoryLayout& layout) {
  std::int64_t bytes = 0;
  for (const UnitMove& move : moves) {
    bytes += static_cast<std::int64_t>(layout.content_bytes(move.view));
  }
  return bytes;
}

/// The unit of a checkpoint that is what `wanted` is in another one of the same or a smaller
/// length.
std::int32_t unit_in(const Checkpoint& checkpoint, const CheckpointUnit& wanted,
                     const MemoryLayout& layout) {
  if (wanted.view == layout.slot_view()) return index(checkpoint.slot());
  if (wanted.view == layout.packed_view()) return index(checkpoint.packed());
  const PageTable& table = checkpoint.tables()[static_cast<std::size_t>(index(wanted.view))];
  return index(table.at(static_cast<std::size_t>(wanted.page)));
}

/// Lists the units of the room that have no bytes yet.
std::vector<CheckpointUnit> lacking_in(const Reservation& room, const MemoryLayout& layout) {
  std::vector<CheckpointUnit> lacking;
  const std::vector<CheckpointUnit> units = units_of(room.checkpoint, layout);
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (!room.is_shared[i]) lacking.push_back(units[i]);
  }
  return lacking;
}

bool is_page(const CheckpointUnit& unit, const MemoryLayout& layout) {
  return index(unit.view) < layout.group_count();
}

}  // namespace

Handovers::Handovers(Side& prompts, Side& answers, UnitLink& link, double bytes_per_second,
                     std::function<std::chrono::steady_clock::time_point()> now)
    : prompts_(&prompts),
      answers_(&answers),
      link_(&link),
      bytes_per_second_(bytes_per_second),
      now_(std::move(now)) {
  prompts_->scheduler.room().on_dry([this] { return reclaim_prompts(); });
  answers_->scheduler.room().on_dry([this] { return reclaim_answers(); });
}

std::span<const TokenId> Handovers::key_of(const Handover& handover) const {
  return handover.sequence->known().first(static_cast<std::size_t>(handover.length));
}

/// Pages after an int8 snapshot are not those that the tokens alone would give.
bool Handovers::shares_pages() const {
  return prompts_->prefixes.options().precision == Precision::exact &&
         answers_->prefixes.options().precision == Precision::exact;
}

void Handovers::advance(bool prompts_idle) {
  finish_copies();
  if (prompts_idle) {
    std::erase_if(handovers_, [](const auto& handover) {
      return handover->source == nullptr && handover->releases != handover->sequence->releases();
    });
    collect();
    keep_places();
    settle_sources();
    deliver_fetches();
  }
  complete();
  place_waiting(prompts_idle);
  if (prompts_idle) begin_early();
  reserve_all();
  if (!prompts_idle) return;
  for (const auto& handover : handovers_) send(*handover);
  complete();  // what has nothing to copy
}

/// Takes copies that are done off the lists. After a failure the targets have any bytes: all that
/// goes to their room is copied again.
void Handovers::finish_copies() {
  for (const auto& handover : handovers_) {
    std::exception_ptr failure;
    std::erase_if(handover->batches, [&](const Batch& batch) {
      if (!batch.copies->is_done()) return false;
      try {
        batch.copies->wait();
      } catch (...) {
        failure = std::current_exception();
      }
      return true;
    });
    if (failure == nullptr) continue;
    give_room_back(*handover);
    std::rethrow_exception(failure);
  }
}

bool Handovers::is_copying() const {
  for (const auto& handover : handovers_) {
    for (const Batch& batch : handover->batches) {
      if (!batch.copies->is_done()) return true;
    }
  }
  return std::any_of(fetches_.begin(), fetches_.end(),
                     [](const auto& fetch) { return !fetch->copies->is_done(); });
}

bool Handovers::has_news(bool prompts_idle) const {
  for (const auto& handover : handovers_) {
    for (const Batch& batch : handover->batches) {
      if (batch.copies->is_done()) return true;
    }
  }
  return prompts_idle && std::any_of(fetches_.begin(), fetches_.end(),
                                     [](const auto& fetch) { return fetch->copies->is_done(); });
}

void Handovers::wait() {
  UnitCopies* next = nullptr;
  for (const auto& fetch : fetches_) {
    if (!fetch->copies->is_done()) next = fetch->copies.get();
  }
  for (const auto& handover : handovers_) {
    for (const Batch& batch : handover->batches) {
      if (!batch.copies->is_done()) next = batch.copies.get();
    }
  }
  if (next == nullptr) return;
  try {
    next->wait();
  } catch (...) {
    // It has ended: advance() throws this.
  }
}

/// Sequences that have drawn a token where the last row of their prompt ran.
void Handovers::collect() {
  const std::span<Sequence* const> running = prompts_->scheduler.sequences();
  for (Sequence* const sequence : std::vector<Sequence*>(running.begin(), running.end())) {
    if (sequence->decodes()) collect(*sequence);
  }
  std::ranges::sort(handovers_, {}, [](const auto& handover) { return handover->sequence->age(); });
}

void Handovers::collect(Sequence& sequence) {
  require(sequence.generated() > 0,
          "handovers: a first token is drawn where the last token of its prompt ran");
  const std::int32_t length = sequence.memory().length();
  // Where one that runs again stops before its last token, its room is for more than there is.
  std::erase_if(handovers_, [&](const auto& handover) {
    return handover->sequence == &sequence && handover->length != length;
  });
  auto own = std::ranges::find(handovers_, &sequence,
                               [](const auto& handover) { return handover->sequence; });
  if (own == handovers_.end()) {
    handovers_.push_back(std::make_unique<Handover>(
        Handover{.sequence = &sequence, .releases = sequence.releases(), .length = length}));
    own = std::prev(handovers_.end());
  }
  std::optional<Checkpoint> end =
      prompts_->scheduler.take(sequence).final_checkpoint(Precision::exact);
  (*own)->source = std::make_unique<PinnedCheckpoint>(prompts_->pool, *std::move(end));
  (*own)->ready = now_();
}

/// From here on a step that fails leaves their bytes as they are.
void Handovers::settle_sources() {
  for (const auto& handover : handovers_) {
    if (handover->source == nullptr || handover->is_whole) continue;
    if (!prompts_->snapshot_io.has_bytes(handover->source->checkpoint()))
      prompts_->snapshot_io.flush_orders();
    handover->is_whole = true;
  }
}

/// Sequences that begin, or begin again: one that lost its memory is a prompt again.
void Handovers::place_waiting(bool prompts_idle) {
  for (Sequence* const sequence : answers_->scheduler.unplaced()) {
    prompts_->scheduler.add(answers_->scheduler.withdraw(*sequence));
  }
  if (!prompts_idle) return;
  for (Sequence* const sequence : prompts_->scheduler.about_to_start()) place(*sequence);
}

/// Takes the longer of both sides' prefixes, and the faster of the ways to go on from it.
void Handovers::place(Sequence& sequence) {
  sequence.awaited().elsewhere = Wait::over;
  const Lookup here = prompts_->prefixes.look_up(sequence.known());
  const Lookup there = answers_->prefixes.look_up(sequence.known());
  if (there.resumable <= here.resumable) return;
  const MemoryLayout& layout = answers_->pool.layout();
  const PrefillCost& cost = prompts_->prefixes.options().cost;
  const auto seconds = [&](std::int32_t length, std::int32_t shared) {
    return static_cast<double>(content_bytes_held(layout, length, shared)) / bytes_per_second_;
  };
  // What steps go on writing is not copied beside them.
  const double copied = answers_->pool.is_written(there.snapshot->checkpoint)
                            ? std::numeric_limits<double>::infinity()
                            : seconds(there.resumable, here.resumable);
  const double again = cost.of(there.resumable) - cost.of(here.resumable);
  const double handed = seconds(sequence.tokens(), there.resumable);
  const double rest = cost.of(sequence.tokens()) - cost.of(there.resumable);
  if (rest <= std::min(copied, again) + handed) {
    move_to_answers(sequence);
  } else if (copied < again) {
    fetch(sequence, there);
  }
}

void Handovers::move_to_answers(Sequence& sequence) {
  const std::vector<Sequence*> choices = prompts_->scheduler.withdraw(sequence);
  for (Sequence* const choice : choices) choice->awaited().elsewhere = Wait::over;
  answers_->scheduler.add(choices);
  ++stats_.stayed;
}

/// The sequence waits for a copy of what the lookup in the other side's tree found. Where there is
/// no room for one, it begins with what there is.
void Handovers::fetch(Sequence& sequence, const Lookup& lookup) {
  const auto key = sequence.known().first(static_cast<std::size_t>(lookup.resumable));
  const auto same = std::ranges::find_if(
      fetches_, [&](const auto& other) { return std::ranges::equal(key, other->key); });
  if (same != fetches_.end()) {
    (*same)->waiting.push_back(&sequence);
    sequence.awaited().elsewhere = Wait::copy;
    return;
  }
  const Checkpoint& there = lookup.snapshot->checkpoint;
  const Precision precision = there.precision();
  auto fetch = std::make_unique<Fetch>();
  fetch->key.assign(key.begin(), key.end());
  fetch->place = lookup.snapshot->place;
  fetch->waiting = {&sequence};
  fetch->source = std::make_unique<PinnedCheckpoint>(answers_->pool, answers_->pool.share(there));
  if (!answers_->snapshot_io.has_bytes(fetch->source->checkpoint()))
    answers_->snapshot_io.flush_orders();
  std::optional<Reservation> room;
  do {
    room = prompts_->snapshot_io.room_with(
        key, precision, shares_pages() ? prompts_->snapshot_io.shared(key) : SharedPrefix{});
  } while (!room && prompts_->snapshot_io.evict_for(key));
  if (!room) return;
  prompts_->snapshot_io.flush_orders();
  const MemoryLayout& layout = prompts_->pool.layout();
  std::vector<UnitMove> moves;
  for (const CheckpointUnit& unit : lacking_in(*room, layout)) {
    moves.push_back({.view = unit.view,
                     .from = unit_in(fetch->source->checkpoint(), unit, layout),
                     .to = unit.unit});
  }
  fetch->room = prompts_->snapshot_io.pin(*std::move(room));
  stats_.bytes_fetched += bytes_of(moves, layout);
  ++stats_.fetches;
  fetch->copies = link_->start(UnitLink::Direction::to_prompts, std::move(moves));
  fetches_.push_back(std::move(fetch));
  sequence.awaited().elsewhere = Wait::copy;
}

void Handovers::deliver_fetches() {
  for (std::size_t i = 0; i < fetches_.size();) {
    if (!fetches_[i]->copies->is_done()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Fetch> fetch = std::move(fetches_[i]);
    fetches_.erase(fetches_.begin() + static_cast<std::ptrdiff_t>(i));
    end_waits(*fetch);
    fetch->copies->wait();
    prompts_->snapshot_io.adopt(fetch->key, fetch->room->take(), fetch->place);
  }
}

void Handovers::end_waits(const Fetch& fetch) {
  for (Sequence* const sequence : fetch.waiting) {
    sequence->awaited().elsewhere = Wait::over;
  }
  prompts_->scheduler.retry_admission();
}

/// Prompts that take more than one step, so that pages go while the rest runs.
void Handovers::begin_early() {
  if (prompts_->pool.layout().group_count() == 0) return;
  for (Sequence* const sequence : prompts_->scheduler.sequences()) {
    if (sequence->memory().length() < prompts_->pool.layout().page_tokens) continue;
    if (sequence->pending() == 0 || !sequence->goes_on_after_next()) continue;
    const bool is_begun = std::ranges::any_of(
        handovers_, [&](const auto& handover) { return handover->sequence == sequence; });
    if (is_begun) continue;
    handovers_.push_back(std::make_unique<Handover>(Handover{
        .sequence = sequence, .releases = sequence->releases(), .length = sequence->tokens()}));
  }
  std::ranges::sort(handovers_, {}, [](const auto& handover) { return handover->sequence->age(); });
}

std::int32_t Handovers::rooms() const {
  return static_cast<std::int32_t>(std::ranges::count_if(
      handovers_, [](const auto& handover) { return handover->room != nullptr; }));
}

void Handovers::keep_places() { answers_->scheduler.keep_places(rooms()); }

/// Sequences that can go on as soon as they are there come before prompts that still run.
void Handovers::reserve_all() {
  for (const auto& handover : handovers_) {
    if (handover->source == nullptr || handover->room != nullptr) continue;
    bool has_room = reserve(*handover);
    while (!has_room && drop_youngest_early_room()) has_room = reserve(*handover);
    if (!has_room) return;
  }
  for (const auto& handover : handovers_) {
    if (handover->room == nullptr && !reserve(*handover)) return;
  }
}

/// False: there is no room beside what the side of answers runs.
bool Handovers::reserve(Handover& handover) {
  const bool is_alone = rooms() == 0 && answers_->scheduler.running() == 0;
  const Neighborhood near = answers_->prefixes.tree().neighborhood(key_of(handover));
  const Lookup lookup = {.resumable = shares_pages() ? near.shared : 0, .snapshot = near.other};
  if (!is_alone && !answers_->scheduler.make_room_for_arrival(*handover.sequence, lookup)) {
    return false;
  }
  std::optional<Reservation> room = take_room(handover, is_alone);
  if (!room) return false;
  answers_->snapshot_io.flush_orders();
  handover.rest = lacking_in(*room, answers_->pool.layout());
  handover.room = answers_->snapshot_io.pin(*std::move(room));
  keep_places();
  return true;
}

/// Alone it has all memory, at last that of a snapshot whose pages it would share.
std::optional<Reservation> Handovers::take_room(const Handover& handover, bool is_alone) {
  const std::span<const TokenId> key = key_of(handover);
  for (;;) {
    std::optional<Reservation> room = answers_->snapshot_io.room_with(
        key, Precision::exact, shares_pages() ? answers_->snapshot_io.shared(key) : SharedPrefix{});
    if (room) return room;
    if (answers_->snapshot_io.evict_for(key)) continue;
    if (!is_alone) return std::nullopt;
    if (answers_->scheduler.room().make()) continue;
    // A prompt that still runs can do without room.
    if (handover.source == nullptr) return std::nullopt;
    const std::int32_t tokens = handover.sequence->tokens();
    if (!answers_->scheduler.room().retry_lacking(tokens)) return std::nullopt;
  }
}

bool Handovers::drop_youngest_early_room() {
  for (auto i = handovers_.rbegin(); i != handovers_.rend(); ++i) {
    Handover& handover = **i;
    if (handover.source != nullptr || handover.room == nullptr) continue;
    give_room_back(handover);
    return true;
  }
  return false;
}

void Handovers::give_room_back(Handover& handover) {
  handover.batches.clear();  // when they have ended
  handover.room.reset();
  handover.rest.clear();
  ++stats_.restarts;
  keep_places();
}

/// Takes what the source has of the rest: full pages of a prompt that still runs, else everything.
std::vector<UnitMove> Handovers::take_moves(Handover& handover, const Checkpoint& source) const {
  const MemoryLayout& layout = prompts_->pool.layout();
  std::vector<UnitMove> moves;
  std::erase_if(handover.rest, [&](const CheckpointUnit& unit) {
    const bool is_full =
        is_page(unit, layout) && (unit.page + 1) * layout.page_tokens <= source.length();
    if (handover.source == nullptr && !is_full) return false;
    moves.push_back({.view = unit.view, .from = unit_in(source, unit, layout), .to = unit.unit});
    return true;
  });
  return moves;
}

void Handovers::send(Handover& handover) {
  if (handover.room == nullptr || handover.rest.empty()) return;
  Batch batch;
  std::vector<UnitMove> moves;
  if (handover.source != nullptr) {
    moves = take_moves(handover, handover.source->checkpoint());
  } else {
    Checkpoint pages = handover.sequence->memory().shared_pages();
    if (!prompts_->snapshot_io.has_bytes(pages)) return;
    moves = take_moves(handover, pages);
    if (moves.empty()) return;
    batch.source = std::make_unique<PinnedCheckpoint>(prompts_->pool, std::move(pages));
  }
  const std::int64_t bytes = bytes_of(moves, answers_->pool.layout());
  try {
    batch.copies = link_->start(UnitLink::Direction::to_answers, std::move(moves));
  } catch (...) {
    give_room_back(handover);  // what it lacks is known no more
    throw;
  }
  stats_.bytes += bytes;
  handover.batches.push_back(std::move(batch));
}

void Handovers::complete() {
  std::erase_if(handovers_, [&](const auto& handover) {
    const bool is_there = handover->source != nullptr && handover->room != nullptr &&
                          handover->rest.empty() && handover->batches.empty();
    if (is_there) complete(*handover);
    return is_there;
  });
  keep_places();
}

void Handovers::complete(Handover& handover) {
  Sequence& sequence = *handover.sequence;
  answers_->scheduler.adopt(sequence, answers_->pool.take_over(handover.room->take()));
  ++stats_.sequences;
  stats_.tokens += handover.length;
  stats_.time += now_() - handover.ready;
  // Other prompts begin with its pages where no snapshot was left for that.
  const Request& request = sequence.request();
  if (request.keep_snapshots && resumes_anywhere(prompts_->pool.layout())) {
    prompts_->prefixes.insert(key_of(handover), handover.source->take(), SnapshotPlace::turn_end);
  }
  if (request.needed_later) {
    prompts_->prefixes.deprioritize(sequence.prompt(), *request.needed_later);
  }
}

void Handovers::leave(const Sequence& sequence) {
  std::erase_if(handovers_, [&](const auto& handover) { return handover->sequence == &sequence; });
  keep_places();
  for (const auto& fetch : fetches_) {
    std::erase_if(fetch->waiting, [&](const Sequence* one) { return one == &sequence; });
  }
  std::erase_if(fetches_, [](const auto& fetch) { return fetch->waiting.empty(); });
}

/// Keeps handovers that have all their bytes: they are pinned, and no lost order names them.
void Handovers::lose_prompts() {
  for (const auto& fetch : fetches_) end_waits(*fetch);
  fetches_.clear();
  std::erase_if(handovers_, [&](const auto& handover) {
    if (handover->source == nullptr || handover->is_whole) return false;
    handover->sequence->release();
    const std::array alone = {handover->sequence};
    prompts_->scheduler.add(alone);
    return true;
  });
  keep_places();
}

void Handovers::lose_answers() {
  for (const auto& fetch : fetches_) end_waits(*fetch);
  fetches_.clear();
  for (const auto& handover : handovers_) {
    if (handover->room != nullptr) give_room_back(*handover);
  }
}

/// Before a sequence that runs there is preempted.
bool Handovers::reclaim_answers() {
  if (drop_youngest_early_room()) return true;
  for (auto i = handovers_.rbegin(); i != handovers_.rend(); ++i) {
    if ((*i)->room == nullptr) continue;
    give_room_back(**i);
    return true;
  }
  return false;
}

/// Copies of a prompt that still runs hold pages that left its window, and keep others in place.
bool Handovers::reclaim_prompts() {
  if (!fetches_.empty()) {
    end_waits(*fetches_.back());
    fetches_.pop_back();
    return true;
  }
  for (auto i = handovers_.rbegin(); i != handovers_.rend(); ++i) {
    if ((*i)->source != nullptr || (*i)->batches.empty()) continue;
    give_room_back(**i);
    return true;
  }
  return false;
}

std::int32_t Handovers::sequences() const {
  return static_cast<std::int32_t>(std::ranges::count_if(
      handovers_, [](const auto& handover) { return handover->source != nullptr; }));
}

std::size_t Handovers::waiting() const {
  std::size_t waiting = 0;
  for (const auto& fetch : fetches_) waiting += fetch->waiting.size();
  return waiting;
}

std::vector<const Checkpoint*> Handovers::held_of_prompts() const {
  std::vector<const Checkpoint*> held;
  for (const auto& fetch : fetches_) held.push_back(&fetch->room->checkpoint());
  for (const auto& handover : handovers_) {
    if (handover->source != nullptr) held.push_back(&handover->source->checkpoint());
    for (const Batch& batch : handover->batches) {
      if (batch.source != nullptr) held.push_back(&batch.source->checkpoint());
    }
  }
  return held;
}

std::vector<const Checkpoint*> Handovers::held_of_answers() const {
  std::vector<const Checkpoint*> held;
  for (const auto& fetch : fetches_) held.push_back(&fetch->source->checkpoint());
  for (const auto& handover : handovers_) {
    if (handover->room != nullptr) held.push_back(&handover->room->checkpoint());
  }
  return held;
}

}  // namespace hyb
