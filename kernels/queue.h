#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "kernels/device.h"
#include "kernels/thread_pool.h"

namespace hyb::kernels {

struct QueueOptions {
  int threads = 0;         ///< 0: as many as this process may use (affinity mask, cgroup cpu.max)
  std::optional<Isa> isa;  ///< none: best_isa(); tests force a lower one
};

/// Where ops run: the threads of the CPU, or later one CUDA stream. Ops on one queue run in order.
/// A Queue on a device that this build or machine lacks throws Error(usage) that says why.
class Queue {
 public:
  explicit Queue(Device device, const QueueOptions& options = {});

  Device device() const { return device_; }
  Isa isa() const { return isa_; }
  int threads() const { return pool_->threads(); }

  /// Calls body(thread, threads) once on every thread and waits for all. The body must not throw.
  template <typename Body>
  void parallel(Body&& body) {
    pool_->run(body);
  }

 private:
  Device device_;
  Isa isa_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace hyb::kernels
