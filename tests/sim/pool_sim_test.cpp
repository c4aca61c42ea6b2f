#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/pool/memory_pool.h"
#include "tests/sim/random.h"
#include "tests/support/free_units.h"

namespace hyb::sim::pool_sim {

/// The first `sinks` positions for ever and the last `window`: a kind that only tests know.
class SinkWindow final : public MemoryKind {
 public:
  SinkWindow(std::int32_t sinks, std::int32_t window) : sinks_(sinks), window_(window) {}
  std::string_view name() const override { return "sink"; }
  bool needs(PositionRange positions, std::int32_t length) const override {
    if (positions.first >= length) return false;
    return positions.first < sinks_ || window_.needs(positions, length);
  }

 private:
  std::int32_t sinks_;
  SlidingWindow window_;
};

/// A layout of random sizes over all kinds of layer memory, and its kinds.
struct RandomLayout {
  explicit RandomLayout(Random& random);
  std::vector<std::unique_ptr<MemoryKind>> kinds;
  MemoryLayout layout;
};

/// What a sequence is to find in its memory: after each token a number that all tokens before it
/// have a part in.
using History = std::vector<std::uint64_t>;

/// The bytes of a pool, as numbers: every position of every page, and what every slot holds.
/// Carries out orders, loses what a superblock held when it changes its owner, and compares what a
/// sequence reads with its history.
class ToyStore {
 public:
  explicit ToyStore(const MemoryLayout& layout);

  void carry_out(const std::vector<Order>& orders);

  /// Everything that the kinds need at the length is where the tables and slots say. Throws.
  void check(const MemoryPool& pool, std::span<const PageTable> tables,
             const History& history) const;
  void check_slot(SlotId slot, const History& history) const;
  void check_packed(PackedId packed, const History& history) const;

  /// Runs `tokens` more: writes the span's positions and the write slot.
  void run(const Memory& memory, const History& after, std::int32_t tokens);
  /// Fills a allocate_empty checkpoint.
  void fill(const Checkpoint& checkpoint, const History& history);

 private:
  /// A slot holds the numbers of its last span, so that fewer tokens may be kept.
  using Slot = std::map<std::int32_t, std::uint64_t>;

  std::uint64_t& at(std::int32_t group, PageId page, std::int32_t offset);
  const std::uint64_t& at(std::int32_t group, PageId page, std::int32_t offset) const {
    return const_cast<ToyStore*>(this)->at(group, page, offset);
  }
  Slot& slot(std::int32_t unit);
  Slot& packed(std::int32_t unit);
  void own(ViewId view, std::int32_t unit) const;
  void copy_unit(const UnitCopy& copy);
  void change_owner(const ChangeOwner& change);

  MemoryLayout layout_;
  std::vector<std::vector<std::uint64_t>> pages_;
  std::vector<Slot> slots_, packed_;
  std::vector<ViewId> owners_;
};

RandomLayout::RandomLayout(Random& random) {
  constexpr std::size_t bytes = 240;
  layout.superblock_bytes = bytes;
  layout.superblocks = random.between(3, 14);
  layout.page_tokens = random.between(1, 5);
  for (int i = random.between(0, 3); i > 0; --i) {
    const std::int32_t size = random.between(1, 14);
    switch (random.between(0, 3)) {
      case 0:
        kinds.push_back(std::make_unique<FullAttention>());
        break;
      case 1:
        kinds.push_back(std::make_unique<SlidingWindow>(size));
        break;
      case 2:
        kinds.push_back(std::make_unique<ChunkedAttention>(size));
        break;
      default:
        kinds.push_back(std::make_unique<SinkWindow>(random.between(1, 6), size));
    }
    const std::int32_t pages = random.between(1, 12);
    layout.groups.push_back({.kind = kinds.back().get(),
                             .page_bytes = bytes / static_cast<std::size_t>(pages),
                             .pages_per_superblock = pages});
  }
  if (layout.groups.empty() || random.chance(70)) {
    const std::int32_t slots = random.between(1, 4), packed = random.between(1, 9);
    layout.slots = {.bytes = bytes / static_cast<std::size_t>(slots), .per_superblock = slots};
    layout.packed = {.bytes = bytes / static_cast<std::size_t>(packed), .per_superblock = packed};
  }
  if (!random.chance(25)) return;
  layout.fixed_superblocks.assign(static_cast<std::size_t>(layout.views()), 0);
  for (std::int32_t i = 0; i < layout.superblocks; ++i) {
    ++layout.fixed_superblocks[random.below(layout.fixed_superblocks.size())];
  }
}

ToyStore::ToyStore(const MemoryLayout& layout) : layout_(layout) {
  const auto count = static_cast<std::size_t>(layout.superblocks);
  for (const PageGroup& group : layout.groups) {
    pages_.emplace_back(count * static_cast<std::size_t>(group.pages_per_superblock) *
                        static_cast<std::size_t>(layout.page_tokens));
  }
  slots_.resize(count * static_cast<std::size_t>(layout.slots.per_superblock));
  packed_.resize(count * static_cast<std::size_t>(layout.packed.per_superblock));
  owners_.assign(count, no_view);
  std::int32_t at = 0;
  for (std::size_t view = 0; view < layout.fixed_superblocks.size(); ++view) {
    for (std::int32_t i = 0; i < layout.fixed_superblocks[view]; ++i) {
      owners_[static_cast<std::size_t>(at++)] = ViewId{static_cast<std::int32_t>(view)};
    }
  }
}

void ToyStore::own(ViewId view, std::int32_t unit) const {
  const std::int32_t units = layout_.units_per_superblock(view);
  require(unit >= 0 && units > 0 && unit < units * layout_.superblocks, "toy: a unit exists");
  require(owners_[static_cast<std::size_t>(unit / units)] == view, "toy: a unit is its view's");
}

std::uint64_t& ToyStore::at(std::int32_t group, PageId page, std::int32_t offset) {
  own(ViewId{group}, index(page));
  return pages_[static_cast<std::size_t>(group)]
               [static_cast<std::size_t>(index(page) * layout_.page_tokens + offset)];
}

ToyStore::Slot& ToyStore::slot(std::int32_t unit) {
  own(layout_.slot_view(), unit);
  return slots_[static_cast<std::size_t>(unit)];
}

ToyStore::Slot& ToyStore::packed(std::int32_t unit) {
  own(layout_.packed_view(), unit);
  return packed_[static_cast<std::size_t>(unit)];
}

void ToyStore::change_owner(const ChangeOwner& change) {
  require(layout_.fixed_superblocks.empty(), "toy: fixed superblocks do not change");
  const auto superblock = static_cast<std::size_t>(index(change.superblock));
  ViewId& owner = owners_[superblock];
  require(change.from == no_view || change.from == owner, "toy: a change names the owner before");
  owner = change.to;
  const auto lose = [&](auto& units, std::int32_t count) {
    const auto first = units.begin() + static_cast<std::ptrdiff_t>(superblock) * count;
    std::fill(first, first + count, typename std::decay_t<decltype(units)>::value_type{});
  };
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    lose(pages_[i], layout_.groups[i].pages_per_superblock * layout_.page_tokens);
  }
  lose(slots_, layout_.slots.per_superblock);
  lose(packed_, layout_.packed.per_superblock);
}

void ToyStore::copy_unit(const UnitCopy& copy) {
  if (copy.view == layout_.slot_view()) {
    slot(copy.to) = slot(copy.from);
  } else if (copy.view == layout_.packed_view()) {
    packed(copy.to) = packed(copy.from);
  } else {
    const std::int32_t group = index(copy.view);
    for (std::int32_t i = 0; i < layout_.page_tokens; ++i) {
      at(group, PageId{copy.to}, i) = at(group, PageId{copy.from}, i);
    }
  }
}

void ToyStore::carry_out(const std::vector<Order>& orders) {
  for (const Order& order : orders) {
    if (const auto* copy = std::get_if<UnitCopy>(&order)) {
      copy_unit(*copy);
    } else if (const auto* pack = std::get_if<PackSlot>(&order)) {
      packed(index(pack->to)) = slot(index(pack->from));
    } else if (const auto* unpack = std::get_if<UnpackSlot>(&order)) {
      slot(index(unpack->to)) = packed(index(unpack->from));
    } else {
      change_owner(std::get<ChangeOwner>(order));
    }
  }
}

void ToyStore::check(const MemoryPool& pool, std::span<const PageTable> tables,
                     const History& history) const {
  const auto length = static_cast<std::int32_t>(history.size());
  for (std::int32_t group = 0; group < pool.layout().group_count(); ++group) {
    const MemoryKind& kind = *layout_.groups[static_cast<std::size_t>(group)].kind;
    for (std::int32_t i = 0; i < length; ++i) {
      if (!kind.needs({.first = i, .last = i + 1}, length)) continue;
      const PageId page = tables[static_cast<std::size_t>(group)].at(
          static_cast<std::size_t>(i / layout_.page_tokens));
      require(at(group, page, i % layout_.page_tokens) == history[static_cast<std::size_t>(i)],
              "toy: a page holds what the sequence wrote");
    }
  }
}

void ToyStore::check_slot(SlotId id, const History& history) const {
  if (id == no_slot) return;
  own(layout_.slot_view(), index(id));
  const Slot& held = slots_[static_cast<std::size_t>(index(id))];
  const auto found = held.find(static_cast<std::int32_t>(history.size()));
  require(found != held.end() && found->second == history.back(),
          "toy: a slot holds what the sequence wrote");
}

void ToyStore::check_packed(PackedId id, const History& history) const {
  if (id == no_packed) return;
  own(layout_.packed_view(), index(id));
  const Slot& held = packed_[static_cast<std::size_t>(index(id))];
  const auto found = held.find(static_cast<std::int32_t>(history.size()));
  require(found != held.end() && found->second == history.back(),
          "toy: a packed snapshot holds what the sequence wrote");
}

void ToyStore::run(const Memory& memory, const History& after, std::int32_t tokens) {
  const std::int32_t begin = memory.length();
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    for (std::int32_t i = begin; i < begin + tokens; ++i) {
      const PageId page =
          memory.tables()[group].at(static_cast<std::size_t>(i / layout_.page_tokens));
      at(static_cast<std::int32_t>(group), page, i % layout_.page_tokens) =
          after[static_cast<std::size_t>(i)];
    }
  }
  if (memory.write_slot() == no_slot) return;
  Slot& written = slot(index(memory.write_slot()));
  written.clear();
  for (std::int32_t i = begin; i <= begin + tokens; ++i) {
    if (i > 0) written[i] = after[static_cast<std::size_t>(i - 1)];
  }
}

void ToyStore::fill(const Checkpoint& checkpoint, const History& history) {
  for (std::size_t group = 0; group < pages_.size(); ++group) {
    for (std::int32_t i = 0; i < checkpoint.length(); ++i) {
      const PageId page =
          checkpoint.tables()[group].at(static_cast<std::size_t>(i / layout_.page_tokens));
      if (page == no_page) continue;
      at(static_cast<std::int32_t>(group), page, i % layout_.page_tokens) =
          history[static_cast<std::size_t>(i)];
    }
  }
  const Slot held = {{checkpoint.length(), history.back()}};
  if (checkpoint.slot() != no_slot) slot(index(checkpoint.slot())) = held;
  if (checkpoint.packed() != no_packed) packed(index(checkpoint.packed())) = held;
}

using namespace hyb;
using namespace hyb::sim;

namespace {

struct Counts {
  std::int64_t steps = 0, checkpoints = 0, packed = 0, resumes = 0, shorter = 0, filled = 0,
               owner_changes = 0, compacted = 0, given_back = 0, ordered_ahead = 0,
               fallen_pages = 0;
};

/// Random lives on a pool of random sizes. After every action the pool is audited; in every step
/// all that a sequence may read is compared with what it wrote, and so is every checkpoint.
class Life {
 public:
  explicit Life(std::uint64_t seed)
      : random_(seed), sizes_(random_), pool_(sizes_.layout), store_(sizes_.layout) {
    if (random_.chance(20)) pool_.limit_compaction(0);
  }

  Counts run() {
    for (int round = 0; round < 40; ++round) {
      for (int i = random_.between(0, 5); i > 0; --i) {
        act();
        audit();
      }
      step();
      audit();
    }
    counts_.owner_changes = pool_.usage().owner_changes;
    counts_.compacted = pool_.usage().compacted_units;
    runs_.clear();
    saved_.clear();
    pool_.audit({}, {});
    require(pool_.all_free(), "something is still held");
    return counts_;
  }

 private:
  struct Run {
    Memory memory;
    History history;
  };
  struct Saved {
    Checkpoint checkpoint;
    History history;
  };

  void act() {
    switch (random_.between(0, 8)) {
      case 0:
      case 1:
        return start();
      case 2:
      case 3:
        return resume();
      case 4:
      case 5:
        return checkpoint();
      case 6:
        return release();
      case 7:
        if (!saved_.empty()) erase(saved_, random_.below(saved_.size()));
        return;
      default:
        return random_.chance(50) ? fill() : give_back();
    }
  }

  template <typename Entry>
  void erase(std::vector<Entry>& entries, std::size_t at) {
    std::swap(entries[at], entries.back());
    entries.pop_back();
  }

  Precision any_precision() {
    const bool packs = sizes_.layout.packed.per_superblock > 0 && random_.chance(40);
    return packs ? Precision::int8 : Precision::exact;
  }

  void start() {
    std::optional<Memory> memory = pool_.start();
    require(memory || slots_free(pool_) == 0, "refused though a slot was free");
    if (memory) runs_.push_back({std::move(*memory), {}});
  }

  void resume() {
    if (saved_.empty()) return;
    const Saved& saved = saved_[random_.below(saved_.size())];
    std::int32_t length = saved.checkpoint.length();
    if (random_.chance(50)) length = random_.between(0, length);
    if (length == 0 || saved.checkpoint.resumable_length(length) != length) return;
    std::optional<Memory> memory = pool_.resume(saved.checkpoint, length);
    if (!memory) return;
    ++counts_.resumes;
    counts_.shorter += length < saved.checkpoint.length() ? 1 : 0;
    const auto end = saved.history.begin() + length;
    runs_.push_back({std::move(*memory), History(saved.history.begin(), end)});
  }

  void checkpoint() {
    if (runs_.empty()) return;
    Run& run = runs_[random_.below(runs_.size())];
    if (run.memory.length() == 0) return;
    std::optional<Checkpoint> made = run.memory.checkpoint(any_precision());
    if (made) save(std::move(*made), run.history);
  }

  void save(Checkpoint checkpoint, const History& history) {
    ++counts_.checkpoints;
    counts_.packed += checkpoint.packed() != no_packed ? 1 : 0;
    saved_.push_back({std::move(checkpoint), history});
  }

  void release() {
    if (runs_.empty()) return;
    const std::size_t at = random_.below(runs_.size());
    Run& run = runs_[at];
    if (run.memory.length() > 0 && random_.chance(50)) {
      const Precision precision = any_precision();
      std::optional<Checkpoint> made = std::move(run.memory).final_checkpoint(precision);
      require(made || precision == Precision::int8, "an exact checkpoint of the end cannot fail");
      if (made) save(std::move(*made), run.history);
    }
    erase(runs_, at);
  }

  void fill() {
    History history;
    for (int i = random_.between(1, 30); i > 0; --i) history.push_back(random_.bits());
    std::optional<Checkpoint> made =
        pool_.allocate_empty(static_cast<std::int32_t>(history.size()), any_precision());
    if (!made) return;
    store_.carry_out(pool_.take_orders());
    store_.fill(*made, history);
    ++counts_.filled;
    saved_.push_back({std::move(*made), std::move(history)});
  }

  void give_back() {
    counts_.given_back += pool_.give_back(random_.between(0, 3));
    counts_.ordered_ahead += pool_.order_ahead(random_.between(0, 2));
  }

  void step() {
    struct Turn {
      Run* run;
      std::int32_t tokens;
    };
    std::vector<Turn> turns;
    for (Run& run : runs_) {
      if (random_.chance(30)) continue;
      const std::int32_t wanted = random_.between(1, 9);
      const bool has_room = run.memory.reserve(wanted);
      const std::int32_t tokens = std::min(wanted, run.memory.room() - run.memory.length());
      require(!has_room || tokens == wanted, "what was reserved is there");
      if (tokens > 0) turns.push_back({&run, tokens});
    }
    store_.carry_out(pool_.take_orders());
    ++counts_.steps;
    for (const Run& run : runs_) check(run);
    for (const Saved& saved : saved_) check(saved);
    for (const Turn& turn : turns) {
      Run& run = *turn.run;
      for (std::int32_t i = 0; i < turn.tokens; ++i) run.history.push_back(random_.bits());
      store_.run(run.memory, run.history, turn.tokens);
      const std::int32_t kept = random_.chance(70) ? turn.tokens : random_.between(0, turn.tokens);
      run.memory.keep(kept);
      run.history.resize(static_cast<std::size_t>(run.memory.length()));
    }
    std::erase_if(runs_, [](const Run& run) { return run.memory.length() > 60; });
  }

  void check(const Run& run) const {
    if (run.history.empty()) return;
    store_.check(pool_, run.memory.tables(), run.history);
    store_.check_slot(run.memory.read_slot(), run.history);
  }

  void check(const Saved& saved) const {
    store_.check(pool_, saved.checkpoint.tables(), saved.history);
    store_.check_slot(saved.checkpoint.slot(), saved.history);
    store_.check_packed(saved.checkpoint.packed(), saved.history);
  }

  void audit() {
    std::vector<const Memory*> memories;
    std::vector<const Checkpoint*> checkpoints;
    for (const Run& run : runs_) {
      memories.push_back(&run.memory);
      for (const PageTable& table : run.memory.tables()) {
        counts_.fallen_pages += std::count(table.begin(), table.end(), no_page);
      }
    }
    for (const Saved& saved : saved_) checkpoints.push_back(&saved.checkpoint);
    pool_.audit(memories, checkpoints);
  }

  Random random_;
  RandomLayout sizes_;
  MemoryPool pool_;
  ToyStore store_;
  std::vector<Run> runs_;
  std::vector<Saved> saved_;
  Counts counts_;
};

}  // namespace

TEST_SUITE("sim/pool") {
  TEST_CASE("every sequence and checkpoint of any kinds finds what it wrote") {
    Counts sum;
    const bool are_all = run_seeds(600, [&](std::uint64_t seed) {
      const Counts counts = Life(seed).run();
      sum.steps += counts.steps;
      sum.checkpoints += counts.checkpoints;
      sum.packed += counts.packed;
      sum.resumes += counts.resumes;
      sum.shorter += counts.shorter;
      sum.filled += counts.filled;
      sum.owner_changes += counts.owner_changes;
      sum.compacted += counts.compacted;
      sum.given_back += counts.given_back;
      sum.ordered_ahead += counts.ordered_ahead;
      sum.fallen_pages += counts.fallen_pages;
    });
    MESSAGE("steps " << sum.steps << ", checkpoints " << sum.checkpoints << ", packed "
                     << sum.packed << ", resumes " << sum.resumes << ", shorter " << sum.shorter
                     << ", filled " << sum.filled << ", owner changes " << sum.owner_changes
                     << ", compacted " << sum.compacted << ", given back " << sum.given_back);
    if (!are_all) return;
    CHECK(sum.checkpoints > 1000);
    CHECK(sum.packed > 1000);
    CHECK(sum.resumes > 1000);
    CHECK(sum.shorter > 100);
    CHECK(sum.filled > 500);
    CHECK(sum.owner_changes > 1000);
    CHECK(sum.compacted > 300);
    CHECK(sum.given_back > 300);
    CHECK(sum.ordered_ahead > 300);
    CHECK(sum.fallen_pages > 1000);
  }
}

}  // namespace hyb::sim::pool_sim
