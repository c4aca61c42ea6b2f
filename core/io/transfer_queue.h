#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/pending_bytes.h"
#include "core/io/storage.h"

namespace hyb {

enum class TransferId : std::int64_t {};

/// Says which thread runs the transfers.
enum class TransferWorker : std::uint8_t {
  thread,  ///< a thread owned by the queue
  caller,  ///< the one that calls run() or waits
};

/// Asynchronous reads and writes of a storage. Transfers run one at a time in the order of the
/// calls, so a read sees all earlier writes, and sectors may be reused by another write as soon as
/// their last read was enqueued.
///
/// The queue owns the buffers, with one limit for writes and one for reads: write() waits for room,
/// and can_read() says whether a read fits. A single transfer larger than the limit is admitted
/// alone.
///
/// After the first failed transfer no further one runs; failure() gives the reason. For use by one
/// thread.
class TransferQueue {
 public:
  /// `bytes_max` limits the buffers of writes, and separately those of reads.
  TransferQueue(std::unique_ptr<Storage> storage, std::size_t bytes_max, TransferWorker worker);
  /// Discards transfers that have not started.
  ~TransferQueue();
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  /// Enqueues a write of `bytes` bytes to the extents. `fill` produces them before this returns;
  /// what it throws is passed on, and nothing is written. Waits for earlier writes while there is
  /// no room.
  TransferId write(std::span<const Extent> extents, std::size_t bytes,
                   const std::function<void(std::span<std::byte>)>& fill);

  /// The same for bytes that are on their way into a buffer that is not the queue's. Waits for
  /// nothing: the transfer waits for its bytes. Where they never come, reads of them fail.
  TransferId write(std::span<const Extent> extents, std::unique_ptr<PendingBytes> source);

  /// Returns whether there is room for a read of `bytes` bytes.
  bool can_read(std::size_t bytes) const;

  /// Enqueues a read of the bytes that one write wrote to these extents, whatever can_read() says.
  /// The caller releases it.
  TransferId read(std::span<const Extent> extents, std::size_t bytes);

  /// The same into memory that is not the queue's, which lives until the read is released.
  TransferId read(std::span<const Extent> extents, std::span<std::byte> into);

  /// Returns whether a read that was not released succeeded with the checksum of what was written.
  /// Empty while it is pending; false after a failure of the queue.
  std::optional<bool> outcome(TransferId read) const;

  /// Returns whether a read's outcome is false only because its bytes were never written: nothing
  /// was damaged.
  bool is_unwritten(TransferId read) const;

  /// The bytes of a read whose outcome is true, until it is released.
  std::span<const std::byte> bytes(TransferId read) const;

  /// Ends a read, finished or not, and frees its buffer. Waits for one that runs, where the buffer
  /// is not the queue's.
  void release(TransferId read);

  /// Waits until one more transfer has ended; returns at once when none is pending.
  void wait();
  void wait_for(TransferId read);
  /// Waits until nothing is pending.
  void drain();

  /// Runs up to `transfers` transfers, with TransferWorker::caller, and returns how many ran.
  std::size_t run(std::size_t transfers);

  bool is_busy() const;            ///< a transfer is pending
  std::string failure() const;     ///< why no transfer runs any more; empty: nothing failed
  std::size_t bytes_held() const;  ///< by buffers in use or kept for reuse

 private:
  using Buffer = std::unique_ptr<std::byte[]>;
  struct Transfer {
    TransferId id{};
    bool is_write = false;
    std::vector<Extent> extents;
    Buffer buffer;
    std::size_t bytes = 0;                 ///< of the buffer
    std::span<std::byte> into = {};        ///< of a read: the buffer, or memory of the caller
    std::unique_ptr<PendingBytes> source;  ///< of a write without a buffer
    bool is_running = false, is_released = false, is_unwritten = false;
    std::optional<bool> outcome;  ///< of a read
  };
  using Lock = std::unique_lock<std::mutex>;

  void work();
  bool run_next(Lock& lock);
  void execute(Transfer& transfer);
  void end(Transfer& transfer);
  void fail(const std::string& why);
  void wait(Lock& lock);
  TransferId add(std::unique_ptr<Transfer> transfer, std::span<const Extent> extents);
  void erase(Transfer& transfer);
  Buffer take_buffer(std::size_t bytes);
  bool has_room(std::size_t held, std::size_t bytes) const;

  std::unique_ptr<Storage> storage_;
  std::size_t bytes_max_;
  TransferWorker worker_;
  /// Checksums of what was written, by first sector. For the thread that runs the transfers.
  std::map<std::uint32_t, std::uint64_t> sums_;

  mutable std::mutex mutex_;  ///< guards all members below
  std::condition_variable has_work_, has_ended_;
  std::map<TransferId, std::unique_ptr<Transfer>> transfers_;        ///< those that hold a buffer
  std::deque<Transfer*> queue_;                                      ///< not started
  std::multimap<std::size_t, Buffer> idle_;                          ///< buffers by size, for reuse
  std::size_t bytes_written_ = 0, bytes_read_ = 0, bytes_idle_ = 0;  ///< held by buffers
  std::int64_t added_ = 0, ended_ = 0;
  std::int32_t pending_ = 0;
  std::string failure_;
  bool stops_ = false;
  std::jthread thread_;
};

}  // namespace hyb
