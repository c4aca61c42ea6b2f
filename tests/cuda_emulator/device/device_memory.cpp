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

Ledger& ledger() {
  static Ledger the_ledger;
  return the_ledger;
}

namespace {

constexpr std::size_t page = 4096;
constexpr std::byte pattern{0xfd};

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void* DeviceMemory::allocate(std::size_t bytes) {
  if (bytes == 0 || !ledger().take(Holder::allocation, bytes)) return nullptr;
  const std::size_t body = round_up(round_up(bytes, alignment), page);
  const int access = reserves_only_ ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* const mapped =
      mmap(nullptr, body + 2 * page, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    ledger().give_back(Holder::allocation, bytes);
    return nullptr;
  }
  auto* const first = static_cast<std::byte*>(mapped) + page;
  std::byte* const at = first + body - round_up(bytes, alignment);
  if (!reserves_only_) {
    std::memset(at, 0xff, bytes);
    std::fill(at + bytes, first + body, pattern);
    mprotect(mapped, page, PROT_NONE);
    mprotect(first + body, page, PROT_NONE);
    if (!open_) mprotect(first, body, PROT_NONE);
  }
  ranges_[address(at)] = {.bytes = bytes, .mapped = first, .mapped_bytes = body};
  return at;
}

bool DeviceMemory::release(void* at) {
  const auto found = ranges_.find(address(at));
  if (found == ranges_.end() || found->second.mapped == nullptr) return false;
  munmap(found->second.mapped - page, found->second.mapped_bytes + 2 * page);
  ledger().give_back(Holder::allocation, found->second.bytes);
  ranges_.erase(found);
  return true;
}

const std::pair<const std::uintptr_t, DeviceMemory::Range>* DeviceMemory::range_before(
    const void* at) const {
  const auto next = ranges_.upper_bound(address(at));
  return next == ranges_.begin() ? nullptr : &*std::prev(next);
}

bool DeviceMemory::contains(const void* at, std::size_t bytes) const {
  const std::uintptr_t end = address(at) + bytes;
  const auto* found = range_before(at);
  while (found != nullptr) {  // mappings may follow each other without a gap
    const std::uintptr_t range_end = found->first + found->second.bytes;
    if (end <= range_end) return address(at) < range_end;
    const auto next = ranges_.find(range_end);
    found = address(at) < range_end && next != ranges_.end() ? &*next : nullptr;
  }
  return false;
}

bool DeviceMemory::is_near(const void* at) const {
  const auto next = ranges_.upper_bound(address(at));
  if (next != ranges_.end() && address(at) + page >= next->first) return true;
  if (next == ranges_.begin()) return false;
  const auto& [first, range] = *std::prev(next);
  return address(at) < first + round_up(range.bytes, alignment) + page;
}

void DeviceMemory::add_mapping(void* at, std::size_t bytes) {
  ranges_[address(at)] = {.bytes = bytes};
}

void* DeviceMemory::allocate_pinned(std::size_t bytes) {
  if (!ledger().take(Holder::pinned, bytes)) return nullptr;
  void* const at = std::aligned_alloc(page, round_up(std::max<std::size_t>(bytes, 1), page));
  if (at != nullptr) pinned_[address(at)] = bytes;
  return at;
}

bool DeviceMemory::release_pinned(void* at) {
  const auto found = pinned_.find(address(at));
  if (found == pinned_.end()) return false;
  ledger().give_back(Holder::pinned, found->second);
  pinned_.erase(found);
  std::free(at);
  return true;
}

bool DeviceMemory::is_pinned(const void* at) const {
  const auto next = pinned_.upper_bound(address(at));
  if (next == pinned_.begin()) return false;
  const auto& [first, bytes] = *std::prev(next);
  return address(at) < first + bytes;
}

void DeviceMemory::open() {
  if (reserves_only_) return;
  open_ = true;
  for (const auto& [at, range] : ranges_) {
    if (range.mapped != nullptr) mprotect(range.mapped, range.mapped_bytes, PROT_READ | PROT_WRITE);
  }
}

void DeviceMemory::close() {
  open_ = false;
  for (const auto& [at, range] : ranges_) {
    if (range.mapped != nullptr) mprotect(range.mapped, range.mapped_bytes, PROT_NONE);
  }
}

std::string DeviceMemory::damage() const {
  if (reserves_only_) return {};
  for (const auto& [at, range] : ranges_) {
    if (range.mapped == nullptr) continue;
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
  open();
  for (const auto& [at, range] : ranges_) {
    if (range.mapped == nullptr) continue;
    auto* const begin = reinterpret_cast<std::byte*>(at);
    std::fill(begin + range.bytes, range.mapped + range.mapped_bytes, pattern);
  }
  close();
}

DeviceMemory& device_memory() {
  static DeviceMemory memory;
  return memory;
}

}  // namespace emulator
