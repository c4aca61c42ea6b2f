#include <cstddef>
#include <string>

#include "core/base/error.h"
#include "core/memory/memory.h"

namespace hyb {
namespace {

/// Holders found of every unit of a view.
using Found = std::vector<std::int32_t>;

void count(Found& found, std::int32_t unit) {
  if (unit >= 0) ++found.at(static_cast<std::size_t>(unit));
}

void count(Found& found, const PageTable& table) {
  for (const PageId page : table) count(found, index(page));
}

void check_view(const Found& found, const Superblocks& superblocks, ViewId view,
                const std::string& what) {
  for (std::size_t unit = 0; unit < found.size(); ++unit) {
    const std::int32_t users = superblocks.users(view, static_cast<std::int32_t>(unit));
    require(found[unit] == users, "memory: " + what + " " + std::to_string(unit) + " has " +
                                      std::to_string(found[unit]) + " holders and counts " +
                                      std::to_string(users));
  }
}

std::string name_of(const MemoryLayout& layout, std::int32_t view) {
  if (ViewId{view} == layout.slot_view()) return "slot";
  if (ViewId{view} == layout.packed_view()) return "packed snapshot";
  return "page";
}

}  // namespace

void MemoryPool::audit() const {
  superblocks_.audit();
  for (std::size_t i = 0; i < memories_.all().size(); ++i) {
    require(memories_.all()[i]->registry_index_ == i, "memory: a sequence is registered once");
  }
  for (std::size_t i = 0; i < checkpoints_.all().size(); ++i) {
    require(checkpoints_.all()[i]->registry_index_ == i, "memory: a checkpoint is registered once");
  }
  for (const Memory* memory : memories_.all()) {
    // A write slot has one holder, or a step would write into someone's snapshot.
    for (std::int32_t cuts = 0; cuts <= memory->cuts_reserved(); ++cuts) {
      const SlotId slot = memory->piece(cuts).write_slot;
      require(slot == no_slot || superblocks_.users(layout().slot_view(), index(slot)) == 1,
              "memory: a write slot is shared");
    }
    check_table(memory->tables_, memory->length_);
    for (const PageTable& table : memory->tables_) {
      // What is still to be written is shared with a checkpoint at most, behind whose length it is.
      const auto next = static_cast<std::size_t>(memory->length_ / page_tokens());
      require(table.size() >= static_cast<std::size_t>(pages_for(memory->length_)),
              "memory: fewer pages than tokens");
      for (std::size_t i = next + 1; i < table.size(); ++i) {
        const auto group = static_cast<std::int32_t>(&table - memory->tables_.data());
        require(superblocks_.users(ViewId{group}, index(table[i])) == 1,
                "memory: a page that is still to be written is shared");
      }
    }
  }
  for (const Checkpoint* checkpoint : checkpoints_.all()) {
    check_table(checkpoint->tables_, checkpoint->length_);
    require(checkpoint->slot_ == no_slot || checkpoint->packed_ == no_packed,
            "memory: a checkpoint has one snapshot");
  }
  require(usage().total() == layout().bytes(), "memory: bytes by owner are not the budget");
}

/// Pages that the kinds need are there, and those that have fallen out are given back.
void MemoryPool::check_table(std::span<const PageTable> tables, std::int32_t length) const {
  for (std::int32_t group = 0; group < groups(); ++group) {
    const PageTable& table = tables[static_cast<std::size_t>(group)];
    for (std::int32_t page = 0; page < pages_for(length); ++page) {
      const bool is_written = (page + 1) * page_tokens() <= length;
      const bool held = table.at(static_cast<std::size_t>(page)) != no_page;
      if (needs(group, page, length)) {
        require(held, "memory: page " + std::to_string(page) + " is needed and not there");
      } else if (is_written) {
        require(!held, "memory: page " + std::to_string(page) + " fell out and is still held");
      }
    }
  }
}

void MemoryPool::audit(std::span<const Memory* const> memories,
                       std::span<const Checkpoint* const> checkpoints) const {
  audit();
  std::vector<Found> found;
  for (std::int32_t view = 0; view < layout().views(); ++view) {
    found.emplace_back(static_cast<std::size_t>(layout().superblocks) *
                           static_cast<std::size_t>(layout().units_per_superblock(ViewId{view})),
                       0);
  }
  Found& slots = found[static_cast<std::size_t>(index(layout().slot_view()))];
  Found& packed = found[static_cast<std::size_t>(index(layout().packed_view()))];
  for (const Memory* memory : memories) {
    if (memory->pool_ != this) continue;
    for (std::size_t group = 0; group < memory->tables_.size(); ++group) {
      count(found[group], memory->tables_[group]);
    }
    count(slots, index(memory->write_slot_));
    for (const Memory::ReservedCut& cut : memory->cuts_) count(slots, index(cut.next_slot));
    if (memory->read_slot_ != memory->write_slot_) count(slots, index(memory->read_slot_));
  }
  for (const Checkpoint* checkpoint : checkpoints) {
    if (checkpoint->pool_ != this) continue;
    for (std::size_t group = 0; group < checkpoint->tables_.size(); ++group) {
      count(found[group], checkpoint->tables_[group]);
    }
    count(slots, index(checkpoint->slot_));
    count(packed, index(checkpoint->packed_));
  }
  for (std::int32_t view = 0; view < layout().views(); ++view) {
    check_view(found[static_cast<std::size_t>(view)], superblocks_, ViewId{view},
               name_of(layout(), view));
  }
}

}  // namespace hyb
