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

#include "core/io/storage.h"

namespace hyb {

enum class TransferId : std::int64_t {};

/// Who carries transfers out.
enum class TransferWorker : std::uint8_t {
  thread,  ///< a thread of the queue's own
  caller,  ///< whoever calls run() or waits
};

/// Carries bytes to a storage and back while its owner does something else. Transfers are carried
/// out one after the other in the order of the calls, so a read sees what was written before it,
/// and sectors may be given to another write as soon as the last read of them was asked for.
///
/// Bytes wait in buffers of the queue's own, of two limits: writes wait for room, reads are refused
/// it. One transfer larger than a limit is let through alone.
///
/// The first transfer that fails is the last one: those behind it are not tried, and failure() says
/// why. One thread calls it.
class TransferQueue {
 public:
  /// `bytes_max` of buffers for writes, and as many for reads.
  TransferQueue(std::unique_ptr<Storage> storage, std::size_t bytes_max, TransferWorker worker);
  /// What was not begun is never carried out.
  ~TransferQueue();
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  /// Has `bytes` bytes written to the extents. `fill` makes them, before this returns; what it
  /// throws leaves this call, and nothing is written. Waits for earlier writes where there is no
  /// room.
  void write(std::span<const Extent> extents, std::size_t bytes,
             const std::function<void(std::span<std::byte>)>& fill);

  /// Whether there is room for a read of so many bytes.
  bool can_read(std::size_t bytes) const;

  /// Has bytes read whose checksum is to be `sum`; can_read() or not, it takes its buffer. Its
  /// caller releases it.
  TransferId read(std::span<const Extent> extents, std::size_t bytes, std::uint64_t sum);

  /// Of a read that was not released: whether its bytes are what was written. Empty: they have not
  /// come yet. After a failure nothing comes any more: false.
  std::optional<bool> outcome(TransferId read) const;

  /// The bytes of a read whose outcome is true, until it is released.
  std::span<const std::byte> bytes(TransferId read) const;

  /// Gives up a read, come or not, and its buffer.
  void release(TransferId read);

  /// Until one more transfer is done; at once when none is under way.
  void wait();
  void wait_for(TransferId read);
  /// Until nothing is under way.
  void drain();

  /// Carries out so many transfers, where that is the caller's to do. Returns how many there were.
  std::size_t run(std::size_t transfers);

  bool is_busy() const;            ///< a transfer is under way
  std::string failure() const;     ///< why nothing more is carried out; empty: nothing failed
  std::size_t bytes_held() const;  ///< of buffers in use or kept for use

 private:
  using Buffer = std::unique_ptr<std::byte[]>;
  struct Transfer {
    TransferId id{};
    bool is_write = false;
    std::vector<Extent> extents;
    Buffer buffer;
    std::size_t bytes = 0;
    std::uint64_t sum = 0;
    bool is_running = false, is_released = false;
    std::optional<bool> outcome;  ///< of a read
  };
  using Lock = std::unique_lock<std::mutex>;

  void work();
  bool run_next(Lock& lock);
  void carry_out(Transfer& transfer) const;
  void end(Transfer& transfer);
  void fail(const std::string& why);
  void wait(Lock& lock);
  Transfer& add(bool is_write, std::span<const Extent> extents, std::size_t bytes, Buffer buffer);
  void erase(Transfer& transfer);
  Buffer take_buffer(std::size_t bytes);
  bool has_room(std::size_t held, std::size_t bytes) const;

  std::unique_ptr<Storage> storage_;
  std::size_t bytes_max_;
  TransferWorker worker_;

  mutable std::mutex mutex_;  ///< for all below
  std::condition_variable has_work_, has_ended_;
  std::map<TransferId, std::unique_ptr<Transfer>> transfers_;  ///< in buffers
  std::deque<Transfer*> queue_;                                ///< not yet begun
  std::multimap<std::size_t, Buffer> idle_;                    ///< buffers by size, to use again
  std::size_t bytes_written_ = 0, bytes_read_ = 0, bytes_idle_ = 0;  ///< of buffers
  std::int64_t added_ = 0, ended_ = 0;
  std::int32_t under_way_ = 0;
  std::string failure_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace hyb
