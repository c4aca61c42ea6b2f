#include <cstddef>
#include <string>

#include "core/base/error.h"
#include "core/memory/memory.h"

namespace hyb {
namespace {

/// Every id is either free, once, or used.
template <IdType Id>
void check_free_list(const std::vector<Id>& free, const std::vector<std::int32_t>& users,
                     const std::string& what) {
  std::vector<bool> is_free(users.size(), false);
  for (const Id id : free) {
    const auto at = static_cast<std::size_t>(index(id));
    require(at < users.size(), what + " out of range in the free list");
    require(!is_free[at], what + " " + std::to_string(at) + " is free twice");
    require(users[at] == 0, what + " " + std::to_string(at) + " is free and used");
    is_free[at] = true;
  }
  for (std::size_t at = 0; at < users.size(); ++at) {
    require(users[at] >= 0, what + " " + std::to_string(at) + " was dropped too often");
    require(is_free[at] || users[at] > 0, what + " " + std::to_string(at) + " is lost");
  }
}

void check_users(const std::vector<std::int32_t>& found, const std::vector<std::int32_t>& users,
                 const std::string& what) {
  for (std::size_t at = 0; at < users.size(); ++at) {
    require(found[at] == users[at], what + " " + std::to_string(at) + " has " +
                                        std::to_string(found[at]) + " holders and counts " +
                                        std::to_string(users[at]));
  }
}

template <IdType Id>
void count(std::vector<std::int32_t>& found, Id id) {
  if (index(id) >= 0) ++found.at(static_cast<std::size_t>(index(id)));
}

}  // namespace

void MemoryPool::audit() const {
  check_free_list(free_pages_, page_users_, "memory: page");
  check_free_list(free_slots_, slot_users_, "memory: slot");
}

void MemoryPool::audit(std::span<const Memory* const> memories,
                       std::span<const Checkpoint* const> checkpoints) const {
  audit();
  std::vector<std::int32_t> pages(page_users_.size(), 0);
  std::vector<std::int32_t> slots(slot_users_.size(), 0);
  for (const Memory* memory : memories) {
    if (memory->pool_ != this) continue;
    for (const PageId page : memory->pages_) count(pages, page);
    count(slots, memory->write_slot_);
    if (memory->read_slot_ != memory->write_slot_) count(slots, memory->read_slot_);
    // A write slot has one holder, or a step would write into someone's snapshot.
    require(memory->write_slot_ == no_slot ||
                slot_users_[static_cast<std::size_t>(index(memory->write_slot_))] == 1,
            "memory: a write slot is shared");
    require(static_cast<std::size_t>(pages_for(memory->length_)) <= memory->pages_.size(),
            "memory: fewer pages than tokens");
  }
  for (const Checkpoint* checkpoint : checkpoints) {
    if (checkpoint->pool_ != this) continue;
    for (const PageId page : checkpoint->pages_) count(pages, page);
    count(slots, checkpoint->slot_);
  }
  check_users(pages, page_users_, "memory: page");
  check_users(slots, slot_users_, "memory: slot");
}

}  // namespace hyb
