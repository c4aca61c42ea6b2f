#include "kernels/arena/prefaulter.h"

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"
#include "core/base/thread.h"

namespace hyb::kernels {
namespace {

/// Up to the end of a huge page, so that the system can give one, and so that neither cancel() nor
/// a call that changes mappings has to wait for long.
constexpr std::size_t fault_bytes = std::size_t{2} << 20;

}  // namespace

void Prefaulter::add(SuperblockId superblock, std::span<std::byte> range) {
  const std::lock_guard lock(mutex_);
  if (is_off_ || range.empty()) return;
  if (!thread_.joinable()) start();
  if (is_off_) return;
  queue_.push_back({superblock, range});
  changed_.notify_all();
}

void Prefaulter::start() {
  try {
    thread_ = start_thread("pools", [this] { work(); });
  } catch (const Error&) {
    is_off_ = true;  // one thread less is no reason to fail
  }
}

void Prefaulter::cancel(SuperblockId superblock) noexcept {
  std::unique_lock lock(mutex_);
  std::erase_if(queue_, [&](const Range& range) { return range.superblock == superblock; });
  changed_.wait(lock, [&] { return touched_ != superblock; });
}

void Prefaulter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !touched_; });
}

void Prefaulter::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    queue_.clear();
    stops_ = true;
    is_off_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

/// The lock is released while memory is faulted in.
void Prefaulter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stops_ || !queue_.empty(); });
    if (stops_) return;
    touched_ = queue_.front().superblock;
    const std::span<std::byte> piece = take_piece();
    lock.unlock();
    const bool done = arena_->populate(piece.data(), piece.size());
    lock.lock();
    touched_.reset();
    if (!done) {
      is_off_ = true;
      queue_.clear();
    }
    changed_.notify_all();
  }
}

std::span<std::byte> Prefaulter::take_piece() {
  std::span<std::byte>& left = queue_.front().left;
  const std::size_t after = reinterpret_cast<std::uintptr_t>(left.data()) % fault_bytes;
  const auto piece = left.first(std::min(left.size(), fault_bytes - after));
  left = left.subspan(piece.size());
  if (left.empty()) queue_.pop_front();
  return piece;
}

}  // namespace hyb::kernels
