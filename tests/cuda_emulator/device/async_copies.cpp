#include "tests/cuda_emulator/device/async_copies.h"

#include <algorithm>
#include <cstring>

namespace emulator {

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
  }
  copies_.erase(copies_.begin(), first_left);
}

}  // namespace emulator
