#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "core/workers/worker.h"

namespace hyb {

/// Starts workers that are copies of this process: what it has in memory when this is made they
/// have, too, and do not read again; what is written later they have where it is shared memory.
///
/// A process of its own, the launcher, is forked at once and forks the workers on demand. It has
/// one thread and touches nothing, so a worker finds the memory as it was, and no lock that another
/// thread held. Launcher and workers end with this object, or when its process ends in whatever
/// way. Signals but faults are blocked in them: Ctrl-C is the engine's. Of its descriptors they
/// have stderr alone.
class WorkerLauncher {
 public:
  /// What a worker does with its end of a pair of stream sockets; then its process ends. No thread
  /// but the caller's is there. It throws nothing.
  using Body = std::function<void(int socket)>;

  /// Everything that `body` uses is in its final state. Throws Error(runtime) where a process
  /// cannot be forked.
  explicit WorkerLauncher(const Body& body);
  ~WorkerLauncher();
  WorkerLauncher(const WorkerLauncher&) = delete;
  WorkerLauncher& operator=(const WorkerLauncher&) = delete;

  /// A worker, which is destroyed before the next one is started, and before this. Throws
  /// Error(runtime).
  std::unique_ptr<Worker> start();

 private:
  pid_t launcher_;
  int control_;  ///< the engine's end of the launcher's socket
};

}  // namespace hyb
