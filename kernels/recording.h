#pragma once

#include <functional>
#include <memory>

#include "kernels/queue.h"

namespace hyb::kernels {

/// Work that a card was asked for once, to be done again with one call: the same ops on the same
/// addresses, whatever stands there then.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

/// Writes down what `body` asks of the queue, which is on a card, without doing it. The body may
/// neither wait, allocate nor move bytes between card and machine. Throws Error(runtime) with
/// CUDA's reason.
std::unique_ptr<Recording> record(Queue& queue, const std::function<void()>& body);

}  // namespace hyb::kernels
