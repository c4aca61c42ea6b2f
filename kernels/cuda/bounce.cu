#include "kernels/cuda/bounce.h"

#include <algorithm>

#include "kernels/cuda/check.h"

namespace hyb::kernels::cuda {

Bounce::Bounce() {
  for (Piece& piece : pieces_) piece.bytes = make_pinned(piece_bytes);
}

std::span<std::byte> Bounce::next() {
  turn_ = 1 - turn_;
  pieces_[turn_].copied.wait();
  return {pieces_[turn_].bytes.get(), piece_bytes};
}

void Bounce::send(Stream& stream, std::byte* to, std::size_t bytes) {
  check(cudaMemcpyAsync(to, pieces_[turn_].bytes.get(), bytes, cudaMemcpyHostToDevice,
                        stream.handle()),
        "cudaMemcpyAsync");
  pieces_[turn_].copied.record(stream);
}

void upload_pieces(
    Stream& stream, std::byte* to, std::size_t bytes,
    const std::function<void(std::size_t offset, std::span<std::byte> piece)>& fill) {
  Bounce& bounce = stream.bounce();
  for (std::size_t offset = 0; offset < bytes;) {
    const std::span<std::byte> room = bounce.next();
    const std::size_t piece = std::min(room.size(), bytes - offset);
    fill(offset, room.first(piece));
    bounce.send(stream, to + offset, piece);
    offset += piece;
  }
}

}  // namespace hyb::kernels::cuda
