#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "core/base/ids.h"
#include "kernels/arena/arena.h"

namespace hyb::kernels {

/// Faults memory in on a thread of its own, while others compute. It changes no byte, so memory may
/// be used before it is done: what is not there yet faults on use, as without it. One thread calls.
/// The first add() starts the thread; where none can be started, or memory cannot be faulted in
/// (Arena::populate), it does nothing.
class Prefaulter {
 public:
  /// The arena outlives it.
  explicit Prefaulter(const Arena& arena) : arena_(&arena) {}
  Prefaulter(const Prefaulter&) = delete;
  Prefaulter& operator=(const Prefaulter&) = delete;
  ~Prefaulter() { stop(); }

  /// Queues a mapped range of a superblock, which stays mapped until cancel() or stop().
  void add(SuperblockId superblock, std::span<std::byte> range);

  /// When it returns, the thread touches none of the superblock's memory any more. It takes no
  /// longer than to fault in a huge page.
  void cancel(SuperblockId superblock) noexcept;

  /// Until everything that was added is done.
  void wait();

  /// Works as cancel() for all; the thread ends.
  void stop() noexcept;

 private:
  struct Range {
    SuperblockId superblock;
    std::span<std::byte> left;
  };

  void start();
  void work();
  std::span<std::byte> take_piece();

  const Arena* arena_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Range> queue_;
  std::optional<SuperblockId> touched_;  ///< the thread is at it
  bool stops_ = false;
  bool is_off_ = false;  ///< there is no thread, or memory cannot be faulted in
  std::jthread thread_;
};

}  // namespace hyb::kernels
