#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Small i32 tables on their way to the ops of a step: clear, take and fill, upload, run. On a card
/// the same takes get the same addresses in every round, as recorded work needs it.
class StagedTables {
 public:
  struct Table {
    std::span<std::int32_t> host;  ///< to be filled before upload()
    Tensor device;                 ///< [count], for ops after it; empty for none
  };

  virtual ~StagedTables() = default;

  /// Starts a round: all room is free again.
  virtual void clear() = 0;
  /// Room for `count` numbers of any value.
  virtual Table take(std::int64_t count) = 0;
  /// Once a round, before the ops that read it. `keeps_first`: the round's first table stays as ops
  /// have left it if the first table of the round before had the same size.
  virtual void upload(bool keeps_first) = 0;
};

/// Says how much they hold, on the queue's device and in pinned memory.
struct StagedBytes {
  std::size_t device, pinned;
};
StagedBytes staged_bytes(Device device, std::size_t bytes);

/// Takes of at most `bytes` in all, each rounded up to 64, allocate nothing. Throws Error(memory).
std::unique_ptr<StagedTables> make_staged_tables(Queue& queue, std::size_t bytes);

/// Recorded work of a card, replayed with one call: the same ops on the same addresses, with the
/// contents that these have then.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

/// Records what `body` enqueues to the queue, which is on a card, without running it. The body may
/// neither wait, allocate nor move bytes between card and machine. Throws Error(runtime) with
/// CUDA's reason.
std::unique_ptr<Recording> record(Queue& queue, const std::function<void()>& body);

}  // namespace hyb::kernels
