#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "kernels/denormals.h"
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

  /// Calls body(0, 1) on the caller alone, with denormals flushed as in parallel(): for work too
  /// small to be worth a hand-over (some 0.5 us). Never compute outside of both, or the same
  /// numbers come out differently for one row than for many.
  template <typename Body>
  void alone(Body&& body) {
    const FlushDenormals flush;
    body(0, 1);
  }

 private:
  Device device_;
  Isa isa_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace hyb::kernels
