#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "core/engine/runner.h"
#include "core/workers/message_socket.h"

namespace hyb {

/// The worker's end of a connection: runs the steps that an engine sends. A thread of its own sends
/// signs of life while there is work, as there is at first, and ends the process when the engine
/// has gone, whatever that does.
class StepServer {
 public:
  /// Closes the socket in the end. Throws Error(runtime) when the thread cannot be started.
  explicit StepServer(int socket, std::chrono::milliseconds beat = std::chrono::milliseconds(1000));
  ~StepServer();
  StepServer(const StepServer&) = delete;
  StepServer& operator=(const StepServer&) = delete;

  /// Says hello, then runs steps as they come until the engine closes its end, or says what is no
  /// step.
  void serve(Runner& runner, const WorkerIdentity& identity);

  /// Instead: says why there is no runner.
  void refuse(const std::exception_ptr& error);

 private:
  void watch();
  bool send(const Message& message);
  void run(Runner& runner, const Message& message);

  MessageSocket socket_;
  std::chrono::milliseconds beat_;
  std::mutex sending_;
  std::atomic<bool> is_busy_ = true, is_ending_ = false;
  std::jthread thread_;
};

/// Does what a worker does: makes its runner with `make`, a function that returns a pointer to what
/// has runner() and identity(), and serves. The engine gets the error that keeps it from being
/// made.
template <typename Make>
void serve_steps(int socket, const Make& make) {
  StepServer server(socket);
  try {
    const auto made = make();
    server.serve(made->runner(), made->identity());
  } catch (...) {
    server.refuse(std::current_exception());
  }
}

}  // namespace hyb
