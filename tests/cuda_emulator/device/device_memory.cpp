#include "tests/cuda_emulator/device/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace emulator {

bool Ledger::take(Holder holder, std::size_t bytes) {
  ++requests_;
  if (requests_ >= refuse_first_ && requests_ < refuse_end_) return false;
  if (holder != Holder::pinned && bytes > free_bytes()) return false;
  bytes_[static_cast<std::size_t>(holder)] += bytes;
  return true;
}

void Ledger::give_back(Holder holder, std::size_t bytes) {
  bytes_[static_cast<std::size_t>(holder)] -= bytes;
}

std::size_t Ledger::device_bytes() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), std::size_t{0}) - bytes(Holder::pinned);
}

std::size_t Ledger::free_bytes() const { return bytes_max - std::min(bytes_max, device_bytes()); }

void Ledger::refuse(std::int64_t n, std::int64_t count) {
  refuse_first_ = n == 0 ? 0 : requests_ + n;
  refuse_end_ = n == 0 ? 0 : refuse_first_ + count;
}

Ledger& ledger(int card) {
  static std::array<Ledger, cards_max> ledgers;
  return ledgers.at(static_cast<std::size_t>(card));
}

namespace {

constexpr std::size_t page = 4096;
constexpr std::byte pattern{0xfd};

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void* DeviceMemory::allocate(int card, std::size_t bytes) {
  if (bytes == 0 || !ledger(card).take(Holder::allocation, bytes)) return nullptr;
  const std::size_t body = round_up(round_up(bytes, alignment), page);
  const int access = reserves_only_ ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* const mapped =
      mmap(nullptr, body + 2 * page, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    ledger(card).give_back(Holder::allocation, bytes);
    return nullptr;
  }
  auto* const first = static_cast<std::byte*>(mapped) + page;
  std::byte* const at = first + body - round_up(bytes, alignment);
  if (!reserves_only_) {
    std::memset(at, 0xff, bytes);
    std::fill(at + bytes, first + body, pattern);
    mprotect(mapped, page, PROT_NONE);
    mprotect(first + body, page, PROT_NONE);
    if ((opened_ & only_card(card)) == 0) mprotect(first, body, PROT_NONE);
  }
  ranges_[address(at)] = {.card = card,
                          .cards = only_card(card),
                          .bytes = bytes,
                          .mapped = first,
                          .mapped_bytes = body};
  return at;
}

bool DeviceMemory::release(void* at) {
  const auto found = ranges_.find(address(at));
  if (found == ranges_.end() || found->second.mapped == nullptr) return false;
  munmap(found->second.mapped - page, found->second.mapped_bytes + 2 * page);
  ledger(found->second.card).give_back(Holder::allocation, found->second.bytes);
  ranges_.erase(found);
  return true;
}

const std::pair<const std::uintptr_t, DeviceMemory::Range>* DeviceMemory::range_before(
    const void* at) const {
  const auto next = ranges_.upper_bound(address(at));
  return next == ranges_.begin() ? nullptr : &*std::prev(next);
}

template <typename Predicate>
bool DeviceMemory::is_covered(const void* at, std::size_t bytes, Predicate predicate) const {
  const std::uintptr_t end = address(at) + bytes;
  const auto* found = range_before(at);
  while (found != nullptr) {  // mappings may follow each other without a gap
    const std::uintptr_t range_end = found->first + found->second.bytes;
    if (address(at) >= range_end || !predicate(found->second)) return false;
    if (end <= range_end) return true;
    const auto next = ranges_.find(range_end);
    found = next != ranges_.end() ? &*next : nullptr;
  }
  return false;
}

bool DeviceMemory::contains(const void* at, std::size_t bytes) const {
  return is_covered(at, bytes, [](const Range&) { return true; });
}

bool DeviceMemory::is_of(int card, const void* at, std::size_t bytes) const {
  return is_covered(at, bytes, [&](const Range& range) { return range.card == card; });
}

std::string DeviceMemory::obstacle(int card, const void* at, std::size_t bytes) const {
  int owner = -1;
  const auto may_touch = [&](const Range& range) {
    const bool may = (range.cards & only_card(card)) != 0;
    if (!may) owner = range.card;
    return may;
  };
  if (is_covered(at, bytes, may_touch)) return {};
  if (owner < 0) return "that are not inside of an allocation of the device";
  return "of card " + std::to_string(owner) + ", which card " + std::to_string(card) +
         " may not touch";
}

int DeviceMemory::card_of(const void* at) const {
  const auto* const found = range_before(at);
  const bool is_inside = found != nullptr && address(at) < found->first + found->second.bytes;
  return is_inside ? found->second.card : -1;
}

bool DeviceMemory::is_near(const void* at) const {
  const auto next = ranges_.upper_bound(address(at));
  if (next != ranges_.end() && address(at) + page >= next->first) return true;
  if (next == ranges_.begin()) return false;
  const auto& [first, range] = *std::prev(next);
  return address(at) < first + round_up(range.bytes, alignment) + page;
}

void DeviceMemory::add_mapping(int card, void* at, std::size_t bytes) {
  ranges_[address(at)] = {.card = card, .cards = no_card, .bytes = bytes};
}

void DeviceMemory::allow(CardSet cards, void* at, std::size_t bytes) {
  const auto end = ranges_.lower_bound(address(at) + bytes);
  for (auto range = ranges_.lower_bound(address(at)); range != end; ++range) {
    range->second.cards |= cards;
  }
}

void* DeviceMemory::allocate_pinned(int card, std::size_t bytes) {
  if (!ledger(card).take(Holder::pinned, bytes)) return nullptr;
  void* const at = std::aligned_alloc(page, round_up(std::max<std::size_t>(bytes, 1), page));
  if (at != nullptr) pinned_[address(at)] = {.card = card, .bytes = bytes};
  return at;
}

bool DeviceMemory::release_pinned(void* at) {
  const auto found = pinned_.find(address(at));
  if (found == pinned_.end()) return false;
  ledger(found->second.card).give_back(Holder::pinned, found->second.bytes);
  pinned_.erase(found);
  std::free(at);
  return true;
}

bool DeviceMemory::is_pinned(const void* at) const {
  const auto next = pinned_.upper_bound(address(at));
  if (next == pinned_.begin()) return false;
  const auto& [first, pinned] = *std::prev(next);
  return address(at) < first + pinned.bytes;
}

void DeviceMemory::open(CardSet cards) {
  if (reserves_only_) return;
  const CardSet changed = opened_ ^ cards;
  opened_ = cards;
  for (const auto& [at, range] : ranges_) {
    if (range.mapped == nullptr || (changed & only_card(range.card)) == 0) continue;
    mprotect(range.mapped, range.mapped_bytes, is_open(range) ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

std::string DeviceMemory::damage() const {
  for (const auto& [at, range] : ranges_) {
    if (!is_open(range)) continue;
    const auto* const begin = reinterpret_cast<const std::byte*>(at);
    const std::byte* const end = range.mapped + range.mapped_bytes;
    const bool intact =
        std::all_of(begin + range.bytes, end, [](std::byte byte) { return byte == pattern; });
    if (!intact) {
      return "something was written past the end of a device allocation of " +
             std::to_string(range.bytes) + " bytes";
    }
  }
  return {};
}

void DeviceMemory::mend() {
  open(every_card);
  for (const auto& [at, range] : ranges_) {
    if (!is_open(range)) continue;
    auto* const begin = reinterpret_cast<std::byte*>(at);
    std::fill(begin + range.bytes, range.mapped + range.mapped_bytes, pattern);
  }
  open(no_card);
}

DeviceMemory& device_memory() {
  static DeviceMemory memory;
  return memory;
}

}  // namespace emulator
