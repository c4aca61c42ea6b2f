#include "core/io/transfer_queue.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/io/file.h"

namespace hyb {

TransferQueue::TransferQueue(std::unique_ptr<Storage> storage, std::size_t bytes_max,
                             TransferWorker worker)
    : storage_(std::move(storage)), bytes_max_(bytes_max), worker_(worker) {
  if (worker_ == TransferWorker::thread) thread_ = start_thread("tier", [this] { work(); });
}

TransferQueue::~TransferQueue() {
  {
    const Lock lock(mutex_);
    stops_ = true;
  }
  has_work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TransferQueue::work() {
  Lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return stops_ || !queue_.empty(); });
    if (stops_) return;
    run_next(lock);
  }
}

/// The lock is released while the storage works.
bool TransferQueue::run_next(Lock& lock) {
  if (queue_.empty()) return false;
  Transfer& transfer = *queue_.front();
  queue_.pop_front();
  transfer.is_running = true;
  lock.unlock();
  std::string failure;
  try {
    execute(transfer);
  } catch (const Error& error) {
    failure = error.what();
  }
  lock.lock();
  if (!failure.empty()) fail(failure);
  end(transfer);
  return true;
}

void TransferQueue::execute(Transfer& transfer) {
  std::span<std::byte> into = transfer.into;
  std::span<const std::byte> bytes(transfer.buffer.get(), transfer.bytes);
  const std::uint32_t place = transfer.extents.front().first;
  if (transfer.is_write) {
    for (const Extent& extent : transfer.extents) {
      sums_.erase(sums_.lower_bound(extent.first), sums_.lower_bound(extent.first + extent.count));
    }
    try {
      if (transfer.source != nullptr) bytes = transfer.source->wait();
    } catch (const Error&) {
      return;  // without a sum nothing is read from here
    }
    sums_.emplace(place, checksum(bytes));
  } else if (!sums_.contains(place)) {
    transfer.outcome = false;
    transfer.is_unwritten = true;
    return;
  }
  for (const Extent& extent : transfer.extents) {
    const std::size_t left = transfer.is_write ? bytes.size() : into.size();
    const std::size_t piece = std::min(left, extent.count * sector_bytes);
    const std::uint64_t offset = std::uint64_t{extent.first} * sector_bytes;
    if (transfer.is_write) {
      storage_->write(offset, bytes.first(piece));
      bytes = bytes.subspan(piece);
    } else {
      storage_->read(offset, into.first(piece));
      into = into.subspan(piece);
    }
  }
  transfer.source.reset();
  if (transfer.is_write) return;
  transfer.outcome = checksum(transfer.into) == sums_.at(place);
}

/// Erases the transfer unless it is a read that the caller has not released.
void TransferQueue::end(Transfer& transfer) {
  ++ended_;
  --pending_;
  transfer.is_running = false;
  if (!failure_.empty()) transfer.outcome = false;
  if (transfer.is_write || transfer.is_released) erase(transfer);
  has_ended_.notify_all();
}

void TransferQueue::fail(const std::string& why) {
  failure_ = why;
  const std::deque<Transfer*> untried = std::exchange(queue_, {});
  for (Transfer* const transfer : untried) end(*transfer);
}

bool TransferQueue::has_room(std::size_t held, std::size_t bytes) const {
  return held == 0 || held + bytes <= bytes_max_;
}

TransferQueue::Buffer TransferQueue::take_buffer(std::size_t bytes) {
  const auto idle = idle_.find(bytes);
  if (idle != idle_.end()) {
    Buffer buffer = std::move(idle->second);
    idle_.erase(idle);
    bytes_idle_ -= bytes;
    return buffer;
  }
  // Idle buffers count towards the limits, too.
  while (!idle_.empty() && bytes_written_ + bytes_read_ + bytes_idle_ + bytes > 2 * bytes_max_) {
    bytes_idle_ -= idle_.begin()->first;
    idle_.erase(idle_.begin());
  }
  return std::make_unique_for_overwrite<std::byte[]>(bytes);
}

TransferId TransferQueue::add(std::unique_ptr<Transfer> transfer, std::span<const Extent> extents) {
  const TransferId id{added_++};
  transfer->id = id;
  transfer->extents.assign(extents.begin(), extents.end());
  Transfer& added = *transfers_.emplace(transfer->id, std::move(transfer)).first->second;
  ++pending_;
  if (failure_.empty()) {
    queue_.push_back(&added);
    has_work_.notify_one();
  } else {
    end(added);
  }
  return id;
}

void TransferQueue::erase(Transfer& transfer) {
  (transfer.is_write ? bytes_written_ : bytes_read_) -= transfer.bytes;
  const std::size_t held = bytes_written_ + bytes_read_ + bytes_idle_;
  if (transfer.buffer != nullptr && held + transfer.bytes <= 2 * bytes_max_) {
    bytes_idle_ += transfer.bytes;
    idle_.emplace(transfer.bytes, std::move(transfer.buffer));
  }
  transfers_.erase(transfer.id);
}

TransferId TransferQueue::write(std::span<const Extent> extents, std::size_t bytes,
                                const std::function<void(std::span<std::byte>)>& fill) {
  auto transfer = std::make_unique<Transfer>();
  transfer->is_write = true;
  transfer->bytes = bytes;
  Lock lock(mutex_);
  while (!has_room(bytes_written_, bytes)) wait(lock);
  transfer->buffer = take_buffer(bytes);
  bytes_written_ += bytes;
  lock.unlock();
  try {
    fill({transfer->buffer.get(), bytes});
  } catch (...) {
    lock.lock();
    bytes_written_ -= bytes;
    throw;
  }
  lock.lock();
  return add(std::move(transfer), extents);
}

TransferId TransferQueue::write(std::span<const Extent> extents,
                                std::unique_ptr<PendingBytes> source) {
  auto transfer = std::make_unique<Transfer>();
  transfer->is_write = true;
  transfer->source = std::move(source);
  const Lock lock(mutex_);
  return add(std::move(transfer), extents);
}

bool TransferQueue::can_read(std::size_t bytes) const {
  const Lock lock(mutex_);
  return has_room(bytes_read_, bytes);
}

TransferId TransferQueue::read(std::span<const Extent> extents, std::size_t bytes) {
  auto transfer = std::make_unique<Transfer>();
  transfer->bytes = bytes;
  const Lock lock(mutex_);
  transfer->buffer = take_buffer(bytes);
  transfer->into = {transfer->buffer.get(), bytes};
  bytes_read_ += bytes;
  return add(std::move(transfer), extents);
}

TransferId TransferQueue::read(std::span<const Extent> extents, std::span<std::byte> into) {
  auto transfer = std::make_unique<Transfer>();
  transfer->into = into;
  const Lock lock(mutex_);
  return add(std::move(transfer), extents);
}

std::optional<bool> TransferQueue::outcome(TransferId read) const {
  const Lock lock(mutex_);
  const Transfer& transfer = *transfers_.at(read);
  if (transfer.is_running) return std::nullopt;
  return transfer.outcome;
}

bool TransferQueue::is_unwritten(TransferId read) const {
  const Lock lock(mutex_);
  return transfers_.at(read)->is_unwritten;
}

std::span<const std::byte> TransferQueue::bytes(TransferId read) const {
  const Lock lock(mutex_);
  const Transfer& transfer = *transfers_.at(read);
  require(!transfer.is_running && transfer.outcome == true,
          "transfer queue: the read has succeeded");
  return transfer.into;
}

void TransferQueue::release(TransferId read) {
  Lock lock(mutex_);
  Transfer& transfer = *transfers_.at(read);
  while (transfer.is_running && transfer.buffer == nullptr) wait(lock);
  if (transfer.is_running) {
    transfer.is_released = true;
    return;
  }
  const auto queued = std::find(queue_.begin(), queue_.end(), &transfer);
  if (queued != queue_.end()) {
    queue_.erase(queued);
    --pending_;
    ++ended_;
  }
  erase(transfer);
}

void TransferQueue::wait(Lock& lock) {
  if (pending_ == 0) return;
  if (worker_ == TransferWorker::caller) {
    run_next(lock);
    return;
  }
  const std::int64_t ended = ended_;
  has_ended_.wait(lock, [&] { return ended_ != ended; });
}

void TransferQueue::wait() {
  Lock lock(mutex_);
  wait(lock);
}

void TransferQueue::wait_for(TransferId read) {
  Lock lock(mutex_);
  const Transfer& transfer = *transfers_.at(read);
  while (transfer.is_running || !transfer.outcome) wait(lock);
}

void TransferQueue::drain() {
  Lock lock(mutex_);
  while (pending_ > 0) wait(lock);
}

std::size_t TransferQueue::run(std::size_t transfers) {
  require(worker_ == TransferWorker::caller, "transfer queue: run() is for TransferWorker::caller");
  Lock lock(mutex_);
  std::size_t done = 0;
  while (done < transfers && run_next(lock)) ++done;
  return done;
}

bool TransferQueue::is_busy() const {
  const Lock lock(mutex_);
  return pending_ > 0;
}

std::string TransferQueue::failure() const {
  const Lock lock(mutex_);
  return failure_;
}

std::size_t TransferQueue::bytes_held() const {
  const Lock lock(mutex_);
  return bytes_written_ + bytes_read_ + bytes_idle_;
}

}  // namespace hyb
