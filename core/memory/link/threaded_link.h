#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/memory/link/unit_link.h"
#include "core/memory/orders.h"
#include "core/memory/pool/layout.h"

namespace hyb {

/// A link whose copies are made by a thread of its own, unit by unit through a buffer. For
/// memory with UnitBytes::read_beside and write_beside: a CPU's.
class ThreadedLink final : public UnitLink {
 public:
  struct End {
    UnitBytes* bytes;
    MemoryLayout layout;
  };

  /// The ends' bytes outlive this object. Throws Error(runtime) when the thread cannot be started.
  ThreadedLink(End prompts, End answers);
  ~ThreadedLink() override;
  ThreadedLink(const ThreadedLink&) = delete;
  ThreadedLink& operator=(const ThreadedLink&) = delete;

  std::unique_ptr<UnitCopies> start(Direction direction, std::vector<UnitMove> moves) override;

 private:
  struct Job;
  class Copies;

  void work();
  void copy(const Job& job);
  void end(Job& job) noexcept;

  End prompts_, answers_;
  std::vector<std::byte> buffer_;  ///< the thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job*> jobs_;  ///< that have not begun; this and what follows: under the mutex
  bool stops_ = false;
  std::jthread thread_;
};

}  // namespace hyb
