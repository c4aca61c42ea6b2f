#include "core/memory/memory.h"

#include <utility>

#include "core/base/error.h"

namespace hyb {

Checkpoint& Checkpoint::operator=(Checkpoint&& other) noexcept {
  Checkpoint taken(std::move(other));
  swap(taken);
  return *this;
}

Checkpoint::~Checkpoint() {
  if (pool_ == nullptr) return;
  for (const PageId page : pages_) pool_->drop(page);
  pool_->drop(slot_);
}

void Checkpoint::swap(Checkpoint& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(pages_, other.pages_);
  std::swap(slot_, other.slot_);
  std::swap(length_, other.length_);
}

Memory& Memory::operator=(Memory&& other) noexcept {
  Memory taken(std::move(other));
  swap(taken);
  return *this;
}

Memory::~Memory() {
  if (pool_ == nullptr) return;
  for (const PageId page : pages_) pool_->drop(page);
  if (read_slot_ != write_slot_) pool_->drop(read_slot_);
  pool_->drop(write_slot_);
}

void Memory::swap(Memory& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(pages_, other.pages_);
  std::swap(read_slot_, other.read_slot_);
  std::swap(write_slot_, other.write_slot_);
  std::swap(length_, other.length_);
}

bool Memory::reserve(std::int32_t tokens) {
  require(pool_ != nullptr && tokens >= 0, "memory: reserve() needs a started sequence");
  const auto needed = static_cast<std::size_t>(pool_->pages_for(length_ + tokens));
  while (pages_.size() < needed) {
    const std::optional<PageId> page = pool_->take_page();
    if (!page) return false;
    pages_.push_back(*page);
  }
  return true;
}

void Memory::keep(std::int32_t tokens) {
  require(pool_ != nullptr && tokens >= 0, "memory: keep() needs a started sequence");
  const auto needed = static_cast<std::size_t>(pool_->pages_for(length_ + tokens));
  require(needed <= pages_.size(), "memory: what is kept was reserved before");
  if (tokens == 0) return;
  length_ += tokens;
  if (read_slot_ == write_slot_) return;
  pool_->drop(read_slot_);
  read_slot_ = write_slot_;
}

std::optional<Checkpoint> Memory::checkpoint() {
  require(pool_ != nullptr, "memory: checkpoint() needs a started sequence");
  Checkpoint checkpoint;
  checkpoint.pool_ = pool_;
  checkpoint.length_ = length_;

  // The live slot is shared with the checkpoint from here on, so the sequence must leave it.
  const bool live = read_slot_ == write_slot_ && write_slot_ != no_slot;
  std::optional<SlotId> next_slot;
  if (live) {
    next_slot = pool_->take_slot();
    if (!next_slot) return std::nullopt;
  }
  if (!pool_->share_prefix(pages_, length_, checkpoint.pages_)) {
    if (next_slot) pool_->drop(*next_slot);
    return std::nullopt;
  }
  checkpoint.slot_ = read_slot_;
  pool_->share(read_slot_);
  if (next_slot) write_slot_ = *next_slot;
  return checkpoint;
}

MemoryPool::MemoryPool(const Capacity& capacity)
    : page_tokens_(capacity.pages > 0 ? capacity.page_tokens : 0) {
  require(capacity.pages >= 0 && capacity.slots >= 0 && capacity.page_tokens >= 0,
          "memory: pool sizes are not negative");
  require(capacity.pages == 0 || capacity.page_tokens > 0, "memory: a page holds tokens");
  page_users_.resize(static_cast<std::size_t>(capacity.pages), 0);
  slot_users_.resize(static_cast<std::size_t>(capacity.slots), 0);
  free_pages_.reserve(page_users_.size());
  free_slots_.reserve(slot_users_.size());
  for (std::int32_t page = capacity.pages; page-- > 0;) free_pages_.push_back(PageId{page});
  for (std::int32_t slot = capacity.slots; slot-- > 0;) free_slots_.push_back(SlotId{slot});
}

std::optional<Memory> MemoryPool::start() {
  Memory memory;
  if (slots_total() > 0) {
    const std::optional<SlotId> slot = take_slot();
    if (!slot) return std::nullopt;
    memory.write_slot_ = *slot;
  }
  memory.pool_ = this;
  return memory;
}

std::optional<Memory> MemoryPool::resume(const Checkpoint& checkpoint) {
  require(checkpoint.pool_ == this, "memory: a checkpoint is resumed in its own pool");
  std::optional<Memory> memory = start();
  if (!memory) return std::nullopt;
  if (!share_prefix(checkpoint.pages_, checkpoint.length_, memory->pages_)) return std::nullopt;
  share(checkpoint.slot_);
  memory->read_slot_ = checkpoint.slot_;
  memory->length_ = checkpoint.length_;
  return memory;
}

std::vector<Order> MemoryPool::take_orders() { return std::exchange(orders_, {}); }

std::int32_t MemoryPool::pages_for(std::int32_t tokens) const {
  if (page_tokens_ == 0) return 0;
  return tokens / page_tokens_ + (tokens % page_tokens_ != 0 ? 1 : 0);
}

bool MemoryPool::share_prefix(std::span<const PageId> pages, std::int32_t length,
                              std::vector<PageId>& copy) {
  if (page_tokens_ == 0) return true;
  const auto full = static_cast<std::size_t>(length / page_tokens_);
  copy.reserve(full + 1);
  if (length % page_tokens_ != 0) {
    const std::optional<PageId> partial = take_page();
    if (!partial) return false;
    orders_.push_back(PageCopy{.from = pages[full], .to = *partial});
    copy.assign(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(full));
    copy.push_back(*partial);
  } else {
    copy.assign(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(full));
  }
  for (std::size_t i = 0; i < full; ++i) share(copy[i]);
  return true;
}

std::optional<PageId> MemoryPool::take_page() {
  if (free_pages_.empty()) return std::nullopt;
  const PageId page = free_pages_.back();
  free_pages_.pop_back();
  page_users_[static_cast<std::size_t>(index(page))] = 1;
  return page;
}

std::optional<SlotId> MemoryPool::take_slot() {
  if (free_slots_.empty()) return std::nullopt;
  const SlotId slot = free_slots_.back();
  free_slots_.pop_back();
  slot_users_[static_cast<std::size_t>(index(slot))] = 1;
  return slot;
}

void MemoryPool::share(PageId page) { ++page_users_[static_cast<std::size_t>(index(page))]; }

void MemoryPool::share(SlotId slot) {
  if (slot == no_slot) return;
  ++slot_users_[static_cast<std::size_t>(index(slot))];
}

void MemoryPool::drop(PageId page) noexcept {
  if (--page_users_[static_cast<std::size_t>(index(page))] == 0) free_pages_.push_back(page);
}

void MemoryPool::drop(SlotId slot) noexcept {
  if (slot == no_slot) return;
  if (--slot_users_[static_cast<std::size_t>(index(slot))] == 0) free_slots_.push_back(slot);
}

}  // namespace hyb
