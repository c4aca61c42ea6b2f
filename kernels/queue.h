#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/device.h"
#include "kernels/thread_pool.h"

namespace hyb::kernels {

namespace cuda {
class Stream;
}
class InputObserver;

struct QueueOptions {
  int threads = 0;  ///< 0: as many as this process may use (affinity mask, cgroup cpu.max)
  std::optional<Isa> isa = {};  ///< none: best_isa(); tests force a lower one
  /// On a card: a row's answer depends on no other row of the call and on no cut of its sequence,
  /// as on the CPU always. Else it is only the same in every run.
  bool batch_invariant = false;
  int card = 0;            ///< of a queue on a card: which of those that CUDA shows this process
  bool is_urgent = false;  ///< on a card: its kernels go before those of other queues
  PoolNeighbours neighbours = {};  ///< the threads of queues that compute at the same time
};

/// Returns what a queue holds of a card from its start on: the workspace of cuBLASLt, where there
/// is one.
std::size_t queue_bytes(Device device, const QueueOptions& options);

/// Says where ops run: the threads of the CPU, or one stream of a card, asynchronously; then the
/// threads do what is left to the CPU. Ops on one queue run in order. A Queue on a device that this
/// build or machine lacks throws Error(usage) that says why.
class Queue {
 public:
  explicit Queue(Device device, const QueueOptions& options = {});

  Device device() const { return device_; }
  Isa isa() const { return isa_; }
  int threads() const { return pool_->threads(); }
  /// QueueOptions::batch_invariant, or on the CPU.
  bool batch_invariant() const { return batch_invariant_; }
  int card() const { return card_; }
  /// With several cards, this thread may enqueue ops on this queue, and what they need of the
  /// card's memory, until it makes a queue of another card current. A new queue is current.
  void make_current() const;
  /// Returns the stream of a queue on a card.
  cuda::Stream& stream() { return *stream_; }
  /// Makes room on a card for the rows of products whose columns have an order (Weight::order);
  /// without it they fail. Not while work is recorded.
  void reserve_ordered(std::size_t bytes);
  /// Returns the observer of the inputs of products on the CPU (linear/input_observer.h); null:
  /// nothing.
  InputObserver* observer() const { return observer_; }
  void set_observer(InputObserver* observer) { observer_ = observer; }

  /// Calls body(thread, threads) once on every thread and waits for all. The body must not throw.
  template <typename Body>
  void parallel(Body&& body) {
    pool_->run(body);
  }

  /// Distributes the items 0..count-1 in runs of at most `grain` to all threads: body(begin, end,
  /// thread). Every thread first works through its own slice (the same items on the same thread at
  /// every call, so its memory is near), then helps the others: a thread that another
  /// program delays does not delay all.
  template <typename Body>
  void share(std::int64_t count, std::int64_t grain, Body&& body) {
    pool_->distribute(count, grain);
    pool_->run([&](int thread, int) {
      while (true) {
        const Slice run = pool_->next_run(thread);
        if (run.begin == run.end) return;
        body(run.begin, run.end, thread);
      }
    });
  }

  /// Calls body(0, 1) on the caller alone, with denormals flushed as in parallel(): for work too
  /// small to be worth a hand-over (some 0.5 us). Never compute outside of both, or the same
  /// numbers come out differently for one row than for many.
  template <typename Body>
  void alone(Body&& body) {
    const FlushDenormals flush;
    body(0, 1);
  }

 private:
  Device device_;
  Isa isa_;
  bool batch_invariant_;
  int card_;
  InputObserver* observer_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<cuda::Stream, void (*)(cuda::Stream*)> stream_;  // a card's, where built
};

/// Calls run(stream) and returns true where the queue is on a card; otherwise the caller does the
/// CPU's work. `run` is generic, so that without CUDA nothing of what it names is needed.
template <typename Run>
bool on_card(Queue& queue, Run&& run) {
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) {
      run(queue.stream());
      return true;
    }
  }
  return false;
}

/// Elements that one thread processes faster than it wakes a second one (about 1 us).
inline constexpr std::int64_t elements_alone = 8192;

/// Calls body(begin, end) for contiguous parts of 0..count-1, on all threads when there is enough
/// to do: an item is worth `elements`, and parts are cut at multiples of `grain`.
template <typename Body>
void share(Queue& queue, std::int64_t count, std::int64_t grain, std::int64_t elements,
           Body&& body) {
  if (count == 0) return;
  auto part = [&](int thread, int threads) {
    const Slice slice = slice_of(count, grain, thread, threads);
    if (slice.begin < slice.end) body(slice.begin, slice.end);
  };
  if (count * elements <= elements_alone || count <= grain) {
    queue.alone(part);
  } else {
    queue.parallel(part);
  }
}

}  // namespace hyb::kernels
