#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>

#include "kernels/cuda/event.h"
#include "kernels/cuda/staging.h"

namespace hyb::kernels::cuda {

/// Two pieces of pinned memory through which large data reach a card: one is filled while the other
/// is copied.
class Bounce {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{16} << 20;

  Bounce();
  /// The next piece, once its last copy is done.
  std::span<std::byte> next();
  /// Asks for the copy of the first `bytes` of the piece that next() gave.
  void send(Stream& stream, std::byte* to, std::size_t bytes);

 private:
  struct Piece {
    PinnedBytes bytes;
    Event copied;
  };
  std::array<Piece, 2> pieces_;
  std::size_t turn_ = 0;
};

/// Writes `bytes` bytes to the card, piece by piece: fill(offset, piece) writes those of the range
/// that begins at `offset`, a multiple of 256. Returns when all of them were asked for.
void upload_pieces(Stream& stream, std::byte* to, std::size_t bytes,
                   const std::function<void(std::size_t offset, std::span<std::byte> piece)>& fill);

}  // namespace hyb::kernels::cuda
