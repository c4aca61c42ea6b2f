#include "kernels/transfer.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/memory.h"

namespace hyb::kernels {
namespace {

/// memcpy by all threads where that pays.
void copy_here(Queue& queue, std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t piece = std::size_t{256} << 10;
  if (bytes <= piece) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto pieces = static_cast<std::int64_t>((bytes + piece - 1) / piece);
  queue.share(pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
    const std::size_t first = static_cast<std::size_t>(begin) * piece;
    const std::size_t last = std::min(bytes, static_cast<std::size_t>(end) * piece);
    std::memcpy(to + first, from + first, last - first);
  });
}

}  // namespace

void upload(Queue& queue, std::byte* to, std::span<const std::byte> from) {
  if (on_card(queue, [&](auto& stream) { cuda::upload(stream, to, from); })) return;
  copy_here(queue, to, from.data(), from.size());
}

void download(Queue& queue, std::span<std::byte> to, const std::byte* from) {
  if (on_card(queue, [&](auto& stream) { cuda::download(stream, to, from); })) return;
  copy_here(queue, to.data(), from, to.size());
}

void copy(Queue& queue, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (on_card(queue, [&](auto& stream) { cuda::copy(stream, to, from, bytes); })) return;
  copy_here(queue, to, from, bytes);
}

void end_uploads(Queue& queue) {
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) queue.stream().drop_bounce();
  }
}

void wait(Queue& queue) {
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) queue.stream().wait();
  }
}

bool is_done(Queue& queue) {
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return queue.stream().is_done();
  }
  return true;
}

}  // namespace hyb::kernels
