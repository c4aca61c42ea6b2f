#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "core/workers/worker.h"

namespace hyb {

/// Starts workers that are copies of this process: what it has in memory when this is made they
/// have, too, and do not read again; what is written later they have where it is shared memory.
///
/// A process of its own, the launcher, is forked at once and forks the workers on demand. It has
/// one thread and touches nothing, so a worker finds the memory as it was, and no lock that another
/// thread held. A copy of it, which does nothing, takes its place when it is killed or does not
/// answer, and leaves the next copy; what it had started ends with it. All of them end with this
/// object, or when its process ends in whatever way. Signals but faults are blocked in them: Ctrl-C
/// is the engine's. Of its descriptors they have stderr alone.
class WorkerLauncher {
 public:
  /// Says what a worker does with its end of a pair of stream sockets; then its process ends. No
  /// thread but the caller's is there. It throws nothing.
  using Body = std::function<void(int socket)>;

  /// Everything that `body` uses is in its final state. A launcher has `patience` for an answer;
  /// forking takes seconds only on a machine without memory. Throws Error(runtime) where a process
  /// cannot be forked.
  explicit WorkerLauncher(const Body& body,
                          std::chrono::milliseconds patience = std::chrono::seconds(10));
  ~WorkerLauncher();
  WorkerLauncher(const WorkerLauncher&) = delete;
  WorkerLauncher& operator=(const WorkerLauncher&) = delete;

  /// A worker, which is destroyed before the next one is started, and before this. Throws
  /// Error(runtime).
  std::unique_ptr<Worker> start();

 private:
  class Process;
  class Forked;

  void take_next();
  void need_next();

  std::chrono::milliseconds patience_;
  std::unique_ptr<Process> launcher_, next_;  ///< null: lost, and none could be made
};

}  // namespace hyb
