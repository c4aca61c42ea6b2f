#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/workers/messages.h"

namespace hyb {

/// Holds what came from the other side of a connection.
struct Received {
  enum class State : std::uint8_t {
    message,
    nothing,  ///< yet
    ended,    ///< nor will there be: the other side has gone
  };
  State state = State::nothing;
  Message message;  ///< whole, with a header that was read
};

/// One worker process, as the engine has it. One thread calls.
class Worker {
 public:
  /// end(), where that was not called.
  virtual ~Worker() = default;

  /// False: the worker has gone, or has not taken it all within `patience`.
  virtual bool send(const Message& message, std::chrono::milliseconds patience) = 0;

  /// Waits for `patience` at most. Throws Error(runtime) for bytes that are no message.
  virtual Received receive(std::chrono::milliseconds patience) = 0;

  /// Ends it, whatever it does. When this returns it reads and writes no memory any more. Once; how
  /// it ended, in words.
  virtual std::string end() = 0;
};

/// Makes a worker, which says hello when it is ready. There is one at a time: it is called when the
/// one before has ended. Throws Error(runtime) where there can be none.
using StartWorker = std::function<std::unique_ptr<Worker>()>;

}  // namespace hyb
