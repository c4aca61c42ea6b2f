#include "core/memory/pool/memory.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/memory/pool/memory_pool.h"

namespace hyb {
namespace {

/// The first position of the group that a sequence at `length` needs and the table lacks; -1: none.
std::int32_t missing_position(const MemoryLayout& layout, std::int32_t group,
                              const PageTable& table, std::int32_t length) {
  const MemoryKind& kind = *layout.groups[static_cast<std::size_t>(group)].kind;
  const std::int32_t tokens = layout.page_tokens;
  for (std::int32_t page = 0; page * tokens < length; ++page) {
    const auto at = static_cast<std::size_t>(page);
    if (at < table.size() && table[at] != no_page) continue;
    if (!layout.holds_page(group, page, length)) continue;
    std::int32_t position = page * tokens;
    if (position + tokens > length) return position;
    while (!kind.needs({position, position + 1}, length)) ++position;
    return position;
  }
  return -1;
}

}  // namespace

Checkpoint::Checkpoint(MemoryPool& pool, std::int32_t length) : pool_(&pool), length_(length) {
  tables_.resize(pool.layout().groups.size());
  pool.checkpoints_.add(*this);
}

Checkpoint& Checkpoint::operator=(Checkpoint&& other) noexcept {
  Checkpoint taken(std::move(other));
  swap(taken);
  return *this;
}

Checkpoint::~Checkpoint() {
  if (pool_ == nullptr) return;
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    pool_->drop(group, tables_[static_cast<std::size_t>(group)]);
  }
  pool_->drop(pool_->layout().slot_view(), index(slot_));
  pool_->drop(pool_->layout().packed_view(), index(packed_));
  pool_->checkpoints_.remove(*this);
}

void Checkpoint::swap(Checkpoint& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(registry_index_, other.registry_index_);
  std::swap(tables_, other.tables_);
  std::swap(slot_, other.slot_);
  std::swap(packed_, other.packed_);
  std::swap(length_, other.length_);
  if (pool_ != nullptr) pool_->checkpoints_.moved(*this);
  if (other.pool_ != nullptr) other.pool_->checkpoints_.moved(other);
}

std::int32_t Checkpoint::resumable_length(std::int32_t limit) const {
  if (length_ <= limit) return length_;
  const MemoryLayout& layout = pool_->layout();
  if (layout.has_slots()) return 0;
  for (std::int32_t length = limit; length > 0;) {
    // A position that is needed at some length is needed at every smaller length after it, so the
    // next candidate below ends at the first missing position.
    std::int32_t next = length;
    for (std::size_t group = 0; group < layout.groups.size(); ++group) {
      const std::int32_t missing =
          missing_position(layout, static_cast<std::int32_t>(group), tables_[group], length);
      if (missing >= 0) next = std::min(next, missing);
    }
    if (next == length) return length;
    length = next;
  }
  return 0;
}

Memory::Memory(MemoryPool& pool) : pool_(&pool) {
  tables_.resize(pool.layout().groups.size());
  settled_.resize(tables_.size(), 0);
  pool.memories_.add(*this);
}

Memory& Memory::operator=(Memory&& other) noexcept {
  Memory taken(std::move(other));
  swap(taken);
  return *this;
}

Memory::~Memory() {
  if (pool_ == nullptr) return;
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    pool_->drop(group, tables_[static_cast<std::size_t>(group)]);
  }
  drop_cuts();
  release_branches();
  if (read_slot_ != write_slot_) pool_->drop(pool_->layout().slot_view(), index(read_slot_));
  pool_->drop(pool_->layout().slot_view(), index(write_slot_));
  pool_->drop(pool_->layout().ring_view(), index(ring_));
  pool_->memories_.remove(*this);
}

void Memory::swap(Memory& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(registry_index_, other.registry_index_);
  std::swap(tables_, other.tables_);
  std::swap(settled_, other.settled_);
  std::swap(read_slot_, other.read_slot_);
  std::swap(write_slot_, other.write_slot_);
  std::swap(ring_, other.ring_);
  std::swap(ring_entries_, other.ring_entries_);
  std::swap(branches_, other.branches_);
  std::swap(has_branch_slot_, other.has_branch_slot_);
  std::swap(cuts_, other.cuts_);
  std::swap(length_, other.length_);
  if (pool_ != nullptr) pool_->memories_.moved(*this);
  if (other.pool_ != nullptr) other.pool_->memories_.moved(other);
}

std::int32_t Memory::room() const {
  require(pool_ != nullptr, "memory: room() needs a started sequence");
  std::int64_t pages = length_endless;
  for (const PageTable& table : tables_) {
    pages = std::min(pages, static_cast<std::int64_t>(table.size()));
  }
  if (tables_.empty()) return length_endless;
  const std::int64_t positions = pages * pool_->layout().page_tokens;
  return static_cast<std::int32_t>(
      std::clamp(positions, std::int64_t{length_}, std::int64_t{length_endless}));
}

bool Memory::reserve(std::int32_t tokens) {
  require(pool_ != nullptr && tokens >= 0, "memory: reserve() needs a started sequence");
  if (tokens == 0) return true;
  const auto needed = static_cast<std::size_t>(pages_for(pool_->layout(), length_ + tokens));
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    PageTable& table = tables_[static_cast<std::size_t>(group)];
    while (table.size() < needed) {
      const std::optional<PageId> page = pool_->take_page(group, table);
      if (!page) return false;
      table.push_back(*page);
    }
  }
  return true;
}

bool Memory::reserve_cut(std::int32_t length) {
  require(pool_ != nullptr && length > (cuts_.empty() ? length_ : cuts_.back().length),
          "memory: cuts are reserved ahead, in ascending order");
  std::optional<SlotId> slot = no_slot;
  if (pool_->layout().has_slots()) slot = pool_->take_unit<SlotId>(pool_->layout().slot_view());
  if (!slot) return false;
  cuts_.push_back({.length = length, .next_slot = *slot});
  return true;
}

void Memory::drop_cuts() {
  for (const ReservedCut& cut : cuts_)
    pool_->drop(pool_->layout().slot_view(), index(cut.next_slot));
  cuts_.clear();
}

Memory::Piece Memory::piece(std::int32_t cuts) const {
  const auto slot_behind = [&](std::int32_t count) {
    return count == 0 ? write_slot_ : cuts_.at(static_cast<std::size_t>(count - 1)).next_slot;
  };
  if (cuts == 0) return {.begin = length_, .read_slot = read_slot_, .write_slot = write_slot_};
  return {.begin = cuts_.at(static_cast<std::size_t>(cuts - 1)).length,
          .read_slot = slot_behind(cuts - 1),
          .write_slot = slot_behind(cuts)};
}

bool Memory::reserve_ring() {
  require(pool_ != nullptr, "memory: reserve_ring() needs a started sequence");
  if (!pool_->layout().has_rings() || ring_ != no_ring) return true;
  const std::optional<RingId> ring = pool_->take_unit<RingId>(pool_->layout().ring_view());
  if (ring) ring_ = *ring;
  return ring.has_value();
}

void Memory::release_ring() {
  if (ring_ == no_ring) return;
  apply_ring();
  pool_->drop(pool_->layout().ring_view(), index(std::exchange(ring_, no_ring)));
}

/// A checkpoint shares a slot only after this, so the slot is still the sequence's own.
void Memory::apply_ring() {
  require(branches_.empty(),
          "memory: branches are dropped before their sequence is kept elsewhere");
  if (ring_entries_ == 0) return;
  pool_->orders_.push_back(AdvanceSlot{.from = read_slot_,
                                       .ring = ring_,
                                       .entries = std::exchange(ring_entries_, 0),
                                       .to = read_slot_});
}

/// The one that the next token is written to.
std::size_t Memory::first_page_of_branches() const {
  return static_cast<std::size_t>(length_ / pool_->layout().page_tokens);
}

bool Memory::reserve_branch(std::int32_t tokens) {
  require(pool_ != nullptr && tokens > 1 && cuts_.empty() &&
              length_ + std::int64_t{tokens} <= length_endless,
          "memory: a branch has drafts after a token, where nothing is cut off");
  branches_.emplace_back();  // from here on what it has is known to the pool, which may move it
  if (take_branch_pages(tokens) && take_branch_slot()) return true;
  drop(branches_.back());
  branches_.pop_back();
  return false;
}

bool Memory::take_branch_pages(std::int32_t tokens) {
  Branch& branch = branches_.back();
  branch.tables.resize(tables_.size());
  const auto needed = static_cast<std::size_t>(pages_for(pool_->layout(), length_ + tokens));
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    const PageTable& own = tables_[static_cast<std::size_t>(group)];
    PageTable& table = branch.tables[static_cast<std::size_t>(group)];
    table.assign(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(first_page_of_branches()));
    while (table.size() < needed) {
      const std::optional<PageId> page = pool_->take_page(group, table);
      if (!page) return false;
      table.push_back(*page);
    }
  }
  if (!pool_->layout().has_rings()) return true;
  const std::optional<RingId> ring = pool_->take_unit<RingId>(pool_->layout().ring_view());
  if (ring) branch.ring = *ring;
  return ring.has_value();
}

/// Nothing is taken after it, so that the copies name pages where they stay.
bool Memory::take_branch_slot() {
  if (pool_->layout().has_slots() && read_slot_ == write_slot_) {
    const std::optional<SlotId> slot = pool_->take_unit<SlotId>(pool_->layout().slot_view());
    if (!slot) return false;
    write_slot_ = *slot;
    has_branch_slot_ = true;
  }
  if (pool_->layout().group_count() == 0 || length_ % pool_->layout().page_tokens == 0) return true;
  const std::size_t first = first_page_of_branches();
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    const auto at = static_cast<std::size_t>(group);
    pool_->orders_.push_back(UnitCopy{.view = ViewId{group},
                                      .from = index(tables_[at][first]),
                                      .to = index(branches_.back().tables[at][first])});
  }
  return true;
}

/// The first pages of its tables are not its own.
void Memory::drop(Branch& branch) noexcept {
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    const PageTable& table = branch.tables[static_cast<std::size_t>(group)];
    for (std::size_t i = first_page_of_branches(); i < table.size(); ++i) {
      pool_->drop(ViewId{group}, index(table[i]));
    }
  }
  pool_->drop(pool_->layout().ring_view(), index(branch.ring));
}

void Memory::release_branches() noexcept {
  for (Branch& branch : branches_) drop(branch);
  branches_.clear();
}

void Memory::drop_branches() {
  release_branches();
  if (!std::exchange(has_branch_slot_, false)) return;
  pool_->drop(pool_->layout().slot_view(), index(std::exchange(write_slot_, read_slot_)));
}

void Memory::take_branch(std::int32_t index) {
  Branch& branch = branches_.at(static_cast<std::size_t>(index));
  for (std::size_t group = 0; group < tables_.size(); ++group) {
    PageTable &own = tables_[group], &table = branch.tables[group];
    const std::size_t both = std::min(own.size(), table.size());
    for (std::size_t i = first_page_of_branches(); i < both; ++i) std::swap(own[i], table[i]);
    // It may have more pages than were reserved for the sequence.
    own.insert(own.end(), table.begin() + static_cast<std::ptrdiff_t>(both), table.end());
    table.resize(both);
  }
  std::swap(ring_, branch.ring);
}

void Memory::keep(std::int32_t tokens, std::int32_t drafts) {
  require(pool_ != nullptr && tokens >= 0, "memory: keep() needs a started sequence");
  if (tokens == 0) return;
  require(drafts >= 0 && drafts < tokens && (drafts == 0 || cuts_.empty()),
          "memory: drafts are kept after a token, and where nothing is cut off");
  require(length_ + std::int64_t{tokens} <= room(), "memory: what is kept was reserved before");
  require(cuts_.empty() || length_ + tokens == cuts_.front().length,
          "memory: what is cut off is kept whole");
  release_branches();
  has_branch_slot_ = false;
  length_ += tokens;
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group)
    give_back_unneeded(group);
  if (read_slot_ != write_slot_) pool_->drop(pool_->layout().slot_view(), index(read_slot_));
  read_slot_ = write_slot_;
  if (pool_->layout().has_slots()) {
    require(drafts == 0 || ring_ != no_ring, "memory: drafts are kept in a ring");
    ring_entries_ = drafts;
  }
  if (cuts_.empty()) return;
  write_slot_ = cuts_.front().next_slot;
  cuts_.erase(cuts_.begin());
}

/// From the oldest page on: kinds stop needing pages in this order (MemoryKind::needs).
void Memory::give_back_unneeded(std::int32_t group) {
  PageTable& table = tables_[static_cast<std::size_t>(group)];
  std::int32_t& page = settled_[static_cast<std::size_t>(group)];
  // Pages that are not full yet stay.
  const std::int32_t full = length_ / pool_->layout().page_tokens;
  for (; page < full; ++page) {
    if (!pool_->layout().holds_page(group, page, length_)) {
      PageId& fallen = table[static_cast<std::size_t>(page)];
      pool_->drop(ViewId{group}, index(fallen));
      fallen = no_page;
    } else if (!pool_->layout().holds_page(group, page, length_endless)) {
      return;
    }
  }
}

Checkpoint Memory::shared_pages() const {
  Checkpoint checkpoint(*pool_, length_);
  const auto pages = static_cast<std::size_t>(pages_for(pool_->layout(), length_));
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    const PageTable& own = tables_[static_cast<std::size_t>(group)];
    PageTable& table = checkpoint.tables_[static_cast<std::size_t>(group)];
    table.assign(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(pages));
    for (auto i = static_cast<std::size_t>(settled_[static_cast<std::size_t>(group)]); i < pages;
         ++i) {
      if (!pool_->layout().holds_page(group, static_cast<std::int32_t>(i), length_))
        table[i] = no_page;
    }
    for (const PageId page : table) {
      pool_->share(ViewId{group}, index(page));
    }
  }
  return checkpoint;
}

std::int64_t Memory::share_full_pages(const Checkpoint& other, std::int32_t tokens) {
  require(pool_ != nullptr && other.pool_ == pool_, "memory: pages are shared within one pool");
  if (pool_->layout().group_count() == 0) return 0;
  tokens = std::min({tokens, length_, other.length_});
  const auto pages = static_cast<std::size_t>(std::max(tokens, 0) / pool_->layout().page_tokens);
  std::int64_t shared = 0;
  for (std::int32_t group = 0; group < pool_->layout().group_count(); ++group) {
    PageTable& own = tables_[static_cast<std::size_t>(group)];
    const PageTable& theirs = other.tables_[static_cast<std::size_t>(group)];
    for (std::size_t i = 0; i < pages; ++i) {
      if (own[i] == no_page || theirs[i] == no_page || own[i] == theirs[i]) continue;
      pool_->share(ViewId{group}, index(theirs[i]));
      pool_->drop(ViewId{group}, index(own[i]));
      own[i] = theirs[i];
      ++shared;
    }
  }
  return shared;
}

bool Memory::pack_into(Checkpoint& checkpoint) const {
  require(pool_->layout().packed.per_superblock > 0, "memory: there are no packed snapshots");
  const std::optional<PackedId> packed = pool_->take_unit<PackedId>(pool_->layout().packed_view());
  if (!packed) return false;
  checkpoint.packed_ = *packed;
  pool_->orders_.push_back(PackSlot{.from = read_slot_, .to = *packed});
  return true;
}

std::optional<Checkpoint> Memory::checkpoint(Precision precision) {
  require(pool_ != nullptr && length_ > 0, "memory: checkpoint() needs a sequence that has run");
  apply_ring();
  std::optional<Checkpoint> checkpoint;
  if (precision == Precision::int8 && pool_->layout().has_slots()) {
    checkpoint = shared_pages();
    if (!pack_into(*checkpoint)) checkpoint.reset();
    return checkpoint;
  }
  // The live slot is shared with the checkpoint from now on, so the sequence needs another one.
  if (read_slot_ == write_slot_ && write_slot_ != no_slot) {
    const std::optional<SlotId> next_slot = pool_->take_unit<SlotId>(pool_->layout().slot_view());
    if (!next_slot) return std::nullopt;
    write_slot_ = *next_slot;
  }
  checkpoint = shared_pages();
  checkpoint->slot_ = read_slot_;
  pool_->share(pool_->layout().slot_view(), index(read_slot_));
  return checkpoint;
}

std::optional<Checkpoint> Memory::final_checkpoint(Precision precision) && {
  require(pool_ != nullptr && length_ > 0,
          "memory: final_checkpoint() needs a sequence that has run");
  apply_ring();
  const Memory released = std::move(*this);
  std::optional<Checkpoint> checkpoint = released.shared_pages();
  if (precision == Precision::int8 && released.pool_->layout().has_slots()) {
    if (!released.pack_into(*checkpoint)) checkpoint.reset();
    return checkpoint;
  }
  checkpoint->slot_ = released.read_slot_;
  released.pool_->share(released.pool_->layout().slot_view(), index(released.read_slot_));
  return checkpoint;
}

std::vector<CheckpointUnit> units_of(const Checkpoint& checkpoint, const MemoryLayout& layout) {
  std::vector<CheckpointUnit> units;
  for (std::int32_t group = 0; group < layout.group_count(); ++group) {
    const PageTable& table = checkpoint.tables()[static_cast<std::size_t>(group)];
    for (const std::int32_t page : held_pages(layout, group, checkpoint.length())) {
      const PageId id = table.at(static_cast<std::size_t>(page));
      require(id != no_page, "checkpoint: it has the pages that its kinds need");
      units.push_back({.view = ViewId{group}, .page = page, .unit = index(id)});
    }
  }
  if (checkpoint.slot() != no_slot) {
    units.push_back({.view = layout.slot_view(), .page = 0, .unit = index(checkpoint.slot())});
  } else if (checkpoint.packed() != no_packed) {
    units.push_back({.view = layout.packed_view(), .page = 0, .unit = index(checkpoint.packed())});
  }
  return units;
}

}  // namespace hyb
