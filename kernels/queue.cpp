#include "kernels/queue.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"

namespace hyb::kernels {
namespace {

constexpr int threads_max = 1024;

int checked_threads(int threads) {
  if (threads < 0 || threads > threads_max) {
    throw Error(ErrorKind::usage, fmt::format("queue: threads is 1 to {}, or 0 for as many as this "
                                              "process may use, got {}",
                                              threads_max, threads));
  }
  return threads == 0 ? usable_cpus().count : threads;
}

Isa checked_isa(const std::optional<Isa>& isa) {
  const Isa best = best_isa();
  if (isa && *isa > best) {
    throw Error(ErrorKind::usage, "queue: this machine lacks the requested instruction set");
  }
  return isa.value_or(best);
}

using StreamOwner = std::unique_ptr<cuda::Stream, void (*)(cuda::Stream*)>;

StreamOwner stream_of(Device device, const QueueOptions& options) {
  if (device == Device::cuda) {
    if constexpr (has_cuda) {
      return StreamOwner(cuda::make_stream({.card = options.card,
                                            .batch_invariant = options.batch_invariant,
                                            .is_urgent = options.is_urgent}),
                         cuda::delete_stream);
    }
    throw Error(ErrorKind::usage, "queue: this build has no CUDA; use --device cpu");
  }
  return StreamOwner(nullptr, [](cuda::Stream*) {});
}

}  // namespace

std::size_t queue_bytes(Device device, const QueueOptions& options) {
  if constexpr (has_cuda) {
    if (device == Device::cuda) return cuda::stream_bytes(options.batch_invariant);
  }
  return 0;
}

Queue::Queue(Device device, const QueueOptions& options)
    : device_(device),
      isa_(checked_isa(options.isa)),
      batch_invariant_(device == Device::cpu || options.batch_invariant),
      card_(options.card),
      pool_(std::make_unique<ThreadPool>(checked_threads(options.threads), options.neighbours)),
      stream_(stream_of(device, options)) {}

void Queue::reserve_ordered(std::size_t bytes) {
  if constexpr (has_cuda) {
    if (device_ == Device::cuda) stream_->reserve_ordered(bytes);
  }
}

void Queue::make_current() const {
  if constexpr (has_cuda) {
    if (device_ == Device::cuda) cuda::use_card(card_);
  }
}

}  // namespace hyb::kernels
