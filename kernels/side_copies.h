#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/base/pending_bytes.h"
#include "kernels/queue.h"
#include "kernels/recording.h"

namespace hyb::kernels {

/// Bytes on their way from pinned memory to the card, which the queue's work does not wait for.
/// Destroyed before its SideCopies, when the copy has ended.
class SideWrite {
 public:
  virtual ~SideWrite() = default;
  virtual std::span<std::byte> room() = 0;  ///< to be filled before start(), on any thread
  /// Starts copying the room's first bytes to the parts, one after the other, once all work of the
  /// queue before this is done. Until is_done() the queue's work does not touch them.
  virtual void start(std::span<const std::span<std::byte>> parts) = 0;
  /// The parts have the bytes. Throws Error(runtime) when the copy failed, as wait() does.
  virtual bool is_done() = 0;
  virtual void wait() = 0;
};

/// Copies from a card to the machine's memory that the queue's work does not wait for: the bytes
/// are set aside on the card, in the queue's order, and go on from there on a stream of their own
/// to pinned memory. The way back needs nothing set aside.
class SideCopies {
 public:
  virtual ~SideCopies() = default;

  /// Starts copying the parts, one after the other, as all work of the queue before leaves them:
  /// its later work may overwrite them. The result has `bytes` bytes, zeros after the parts, and is
  /// destroyed before this object. Null: there is no room before earlier results are destroyed, or
  /// never for as many bytes.
  virtual std::unique_ptr<PendingBytes> start(std::span<const std::span<const std::byte>> parts,
                                              std::size_t bytes) = 0;

  /// Room in pinned memory for `bytes` bytes that go the other way. Null: there is no room before
  /// earlier ones are destroyed, or never for as many bytes.
  virtual std::unique_ptr<SideWrite> stage_write(std::size_t bytes) = 0;
};

/// The room of the copies under way, in bytes.
struct SideCopyRoom {
  std::size_t out = 0;   ///< from the card: of its memory, too
  std::size_t back = 0;  ///< to the card
};

/// Null where there is no room, and on the CPU. The queue outlives it. Throws Error(memory).
std::unique_ptr<SideCopies> make_side_copies(Queue& queue, const SideCopyRoom& room);

/// Returns the bytes that it takes of the card's memory and of pinned memory.
StagedBytes side_copy_bytes(Device device, const SideCopyRoom& room);

}  // namespace hyb::kernels
