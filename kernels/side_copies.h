#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/base/pending_bytes.h"
#include "kernels/queue.h"
#include "kernels/recording.h"

namespace hyb::kernels {

/// Copies from a card to the machine's memory that the queue's work does not wait for: the bytes
/// are set aside on the card, in the queue's order, and go on from there on a stream of their own
/// to pinned memory.
class SideCopies {
 public:
  virtual ~SideCopies() = default;

  /// Starts copying the parts, one after the other, as all work of the queue before leaves them:
  /// its later work may overwrite them. The result has `bytes` bytes, zeros after the parts, and is
  /// destroyed before this object. Null: there is no room before earlier results are destroyed, or
  /// never for as many bytes.
  virtual std::unique_ptr<PendingBytes> start(std::span<const std::span<const std::byte>> parts,
                                              std::size_t bytes) = 0;
};

/// With room for `bytes` bytes; null for 0, and on the CPU. The queue outlives it. Throws
/// Error(memory).
std::unique_ptr<SideCopies> make_side_copies(Queue& queue, std::size_t bytes);

/// What it takes of the card's memory and of pinned memory.
StagedBytes side_copy_bytes(Device device, std::size_t bytes);

}  // namespace hyb::kernels
