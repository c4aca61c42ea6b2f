#include "tests/cuda_emulator/device/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "tests/cuda_emulator/device/grid.h"

namespace emulator {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t alignment_max = 128;
constexpr std::size_t fence = 64;
constexpr std::byte poison{0xff}, pattern{0xfd};

std::byte* align_up(std::byte* at, std::size_t alignment) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(at) + alignment - 1) /
                                      alignment * alignment);
}

bool is_untouched(const std::byte* begin, const std::byte* end) {
  return std::all_of(begin, end, [](std::byte byte) { return byte == pattern; });
}

}  // namespace

SharedMemory::SharedMemory() {
  void* const mapped = mmap(nullptr, room + 2 * page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  begin_ = static_cast<std::byte*>(mapped);
  end_ = begin_ + page + room;
  mprotect(begin_, page, PROT_NONE);
  mprotect(end_, page, PROT_NONE);
  prepare(0, bytes_max);
}

SharedMemory::~SharedMemory() { munmap(begin_, room + 2 * page); }

void SharedMemory::prepare(std::size_t dynamic_bytes, std::size_t limit) {
  dynamic_bytes_ = dynamic_bytes;
  objects_bytes_ = 0;
  limit_ = limit;
  dynamic_ = end_ - (dynamic_bytes + alignment_max - 1) / alignment_max * alignment_max;
  std::fill(dynamic_ - fence, dynamic_, pattern);
  std::memset(dynamic_, static_cast<int>(poison), dynamic_bytes);
  std::fill(dynamic_ + dynamic_bytes, end_, pattern);
  objects_.clear();
  objects_end_ = begin_ + page;
}

std::byte* SharedMemory::object(const void* key, std::size_t bytes, std::size_t alignment) {
  for (const Object& object : objects_) {
    if (object.key == key) return object.begin;
  }
  std::byte* const begin = align_up(objects_end_ + fence, alignment);
  if (begin + bytes + fence > dynamic_ - fence) return nullptr;
  if (dynamic_bytes_ + objects_bytes_ + bytes > limit_) return nullptr;
  objects_bytes_ += bytes;
  std::fill(objects_end_, begin, pattern);
  std::memset(begin, static_cast<int>(poison), bytes);
  std::fill(begin + bytes, begin + bytes + fence, pattern);
  objects_end_ = begin + bytes + fence;
  objects_.push_back({.key = key, .begin = begin, .bytes = bytes});
  return begin;
}

bool SharedMemory::contains(const void* at, std::size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(at);
  if (first >= dynamic_ && first + bytes <= dynamic_ + dynamic_bytes_) return true;
  return std::any_of(objects_.begin(), objects_.end(), [&](const Object& object) {
    return first >= object.begin && first + bytes <= object.begin + object.bytes;
  });
}

std::size_t SharedMemory::offset_of(const void* at) const {
  return reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(begin_ + page);
}

std::string SharedMemory::damage() const {
  if (!is_untouched(dynamic_ - fence, dynamic_)) {
    return "something was written before the dynamic shared memory";
  }
  if (!is_untouched(dynamic_ + dynamic_bytes_, end_)) {
    return "something was written past the " + std::to_string(dynamic_bytes_) +
           " bytes of dynamic shared memory";
  }
  for (const Object& object : objects_) {
    if (!is_untouched(object.begin - fence, object.begin) ||
        !is_untouched(object.begin + object.bytes, object.begin + object.bytes + fence)) {
      return "something was written outside of a shared object of " + std::to_string(object.bytes) +
             " bytes";
    }
  }
  return {};
}

bool SharedMemory::is_guard_page(const void* at) const {
  const auto* const byte = static_cast<const std::byte*>(at);
  return (byte >= begin_ && byte < begin_ + page) || (byte >= end_ && byte < end_ + page);
}

void AsyncCopies::clear() {
  copies_.clear();
  groups_ = 0;
}

void AsyncCopies::issue(void* to, const void* from, std::size_t bytes, std::size_t source_bytes) {
  std::memset(to, 0xff, bytes);
  copies_.push_back({.to = static_cast<std::byte*>(to),
                     .from = static_cast<const std::byte*>(from),
                     .bytes = bytes,
                     .source_bytes = source_bytes,
                     .group = groups_});
}

void AsyncCopies::wait(std::size_t pending) {
  const std::size_t end = groups_ > pending ? groups_ - pending : 0;
  const auto first_left = std::find_if(copies_.begin(), copies_.end(),
                                       [&](const Copy& copy) { return copy.group >= end; });
  for (auto copy = copies_.begin(); copy != first_left; ++copy) {
    if (copy->source_bytes > 0) std::memcpy(copy->to, copy->from, copy->source_bytes);
    std::memset(copy->to + copy->source_bytes, 0, copy->bytes - copy->source_bytes);
    if (is_instrumented) {
      current_thread->block->accesses->check_copied(*current_thread, copy->to, copy->bytes,
                                                    __builtin_return_address(0));
    }
  }
  copies_.erase(copies_.begin(), first_left);
}

}  // namespace emulator
