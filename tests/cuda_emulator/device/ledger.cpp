#include "tests/cuda_emulator/device/ledger.h"

#include <algorithm>
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

}  // namespace emulator
