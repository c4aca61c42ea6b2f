#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "kernels/queue.h"

namespace hyb::kernels {

/// Bytes of one card's memory, and where in another card's they go.
struct CardCopy {
  std::span<const std::byte> from;
  std::byte* to;
};

/// Copies under way. When this is destroyed they have ended.
class PendingCardCopies {
 public:
  virtual ~PendingCardCopies() = default;
  /// Says whether the bytes are there, or the copies have failed.
  virtual bool is_done() = 0;
  /// Until they are there. Throws Error(runtime) when the copies failed.
  virtual void wait() = 0;
};

/// From one card to another, beside the work of both: by the cards themselves where they are peers,
/// else through pinned memory.
class CardCopies {
 public:
  virtual ~CardCopies() = default;

  /// Starts when all that was enqueued in both queues until now is done. Until it has ended no
  /// later work of either writes what is read, or touches what is written. What it returns is
  /// destroyed before this object.
  virtual std::unique_ptr<PendingCardCopies> start(std::span<const CardCopy> copies) = 0;
};

/// Pinned memory of one direction, where the cards are no peers.
inline constexpr std::size_t card_copies_pinned_bytes = std::size_t{16} << 20;

/// The queues, of two cards, outlive it. `are_peers`: each card's memory that is copied was mapped
/// for the other one (SuperblockMapOptions::peers). Throws Error(memory).
std::unique_ptr<CardCopies> make_card_copies(Queue& from, Queue& to, bool are_peers);

}  // namespace hyb::kernels
