#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/arena/cuda_arena.h"

namespace hyb::kernels::testing {

/// CUDA's virtual-memory calls over a file in memory. It keeps the driver's rules, records what
/// broke one, and can refuse the n-th call. table() is that of the youngest that lives.
///
/// As on a card, a process that is forked from one with a driver needs a driver of its own: this
/// one refuses its calls.
class FakeDriver {
 public:
  static constexpr int invalid_value = 1;
  static constexpr int out_of_memory = 2;
  static constexpr int not_initialized = 3;

  explicit FakeDriver(std::size_t granularity = 4096) : granularity_(granularity) {
    file_ = memfd_create("fake-driver", MFD_CLOEXEC);
    outer_ = std::exchange(current_, this);
  }
  ~FakeDriver() {
    current_ = outer_;
    close(file_);
  }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  static FakeDriver& current() { return *current_; }

  /// One device at first. `are_peers`: each can be given access to the memory of the others.
  void set_devices(int count, bool are_peers = true) {
    devices_ = count;
    are_peers_ = are_peers;
  }

  static DriverTable table() {
    DriverTable table;
    table.get_error_name = [](int result, const char** name) {
      *name = result == out_of_memory     ? "CUDA_ERROR_OUT_OF_MEMORY"
              : result == not_initialized ? "CUDA_ERROR_NOT_INITIALIZED"
                                          : "CUDA_ERROR_INVALID_VALUE";
      return driver::success;
    };
    table.mem_get_allocation_granularity = [](auto... values) {
      return current_->call([&] { return current_->granularity(values...); });
    };
    table.mem_address_reserve = [](auto... values) {
      return current_->call([&] { return current_->reserve(values...); });
    };
    table.mem_address_free = [](auto... values) {
      return current_->call([&] { return current_->unreserve(values...); });
    };
    table.mem_create = [](auto... values) {
      return current_->call([&] { return current_->create(values...); });
    };
    table.mem_release = [](auto... values) {
      return current_->call([&] { return current_->release(values...); });
    };
    table.mem_map = [](auto... values) {
      return current_->call([&] { return current_->map(values...); });
    };
    table.mem_unmap = [](auto... values) {
      return current_->call([&] { return current_->unmap(values...); });
    };
    table.mem_set_access = [](auto... values) {
      return current_->call([&] { return current_->set_access(values...); });
    };
    table.memset_d8 = [](auto... values) {
      return current_->call([&] { return current_->fill(values...); });
    };
    table.stream_synchronize = [](CUstream_st*) {
      return current_->call([&] { return current_->do_fills(); });
    };
    table.now = [] { return current_->calls_ * current_->call_seconds_; };
    return table;
  }

  /// What every call takes by the table's clock, which only calls move.
  void set_call_seconds(double seconds) { call_seconds_ = seconds; }

  /// Refuses the n-th call from now on, the first being 1; 0: none.
  void refuse_call(int n) { refuse_at_ = n == 0 ? 0 : calls_ + n; }
  int calls() const { return calls_; }
  const std::vector<std::string>& broken_rules() const { return broken_; }
  bool is_clean() const { return ranges_.empty() && mappings_.empty() && handles_.empty(); }
  std::size_t handles() const { return handles_.size(); }
  std::size_t mappings() const { return mappings_.size(); }

  /// Of a handle that exists.
  int device_of(driver::Handle handle) const { return handles_.at(handle)->device; }
  /// Created here and not free yet: it has a handle or is mapped.
  std::size_t bytes_held(int device) const {
    const auto found = bytes_held_.find(device);
    return found == bytes_held_.end() ? 0 : found->second;
  }
  /// May all of it be read and written by kernels of the device?
  bool is_accessible(const void* at, std::size_t bytes, int device) const {
    return is_covered(reinterpret_cast<driver::Address>(at), bytes, [&](const Mapping& mapping) {
      return std::count(mapping.devices.begin(), mapping.devices.end(), device) > 0;
    });
  }

 private:
  /// What handles and mappings are of; free when there is none of both.
  struct Memory {
    std::size_t offset, bytes;
    int device;
    int users = 1;  ///< handles and mappings
  };
  using MemoryPlace = std::list<Memory>::iterator;
  struct Mapping {
    std::size_t bytes;
    MemoryPlace memory;
    std::vector<int> devices;  ///< that may touch it
  };
  struct Fill {
    driver::Address at;
    std::size_t bytes;
    unsigned char value;
  };
  template <typename Action>
  int call(Action action) {
    if (getpid() != process_) return not_initialized;
    const std::lock_guard lock(mutex_);
    if (++calls_ == refuse_at_) return out_of_memory;
    return action();
  }
  int broken(const char* rule) {
    broken_.emplace_back(rule);
    return invalid_value;
  }
  static void* pointer(driver::Address at) { return reinterpret_cast<void*>(at); }

  bool is_device(const driver::Location& location) const {
    return location.type == driver::location_device && location.id >= 0 && location.id < devices_;
  }
  bool is_reserved(driver::Address at, std::size_t bytes) const {
    const auto next = ranges_.upper_bound(at);
    if (next == ranges_.begin()) return false;
    const auto& [first, size] = *std::prev(next);
    return at + bytes <= first + size;
  }
  bool overlaps(driver::Address at, std::size_t bytes) const {
    const auto next = mappings_.lower_bound(at + bytes);
    if (next == mappings_.begin()) return false;
    const auto& [first, mapping] = *std::prev(next);
    return first + mapping.bytes > at;
  }
  /// Is all of it mapped, and is each mapping as the predicate says?
  template <typename Predicate>
  bool is_covered(driver::Address at, std::size_t bytes, Predicate predicate) const {
    for (driver::Address next = at; next < at + bytes;) {
      const auto found = mappings_.find(next);
      if (found == mappings_.end() || !predicate(found->second)) return false;
      next += found->second.bytes;
    }
    return true;
  }

  int granularity(std::size_t* granularity, const driver::AllocationProperties* wish, int) {
    if (wish->type != driver::allocation_pinned) return broken("granularity: type");
    if (!is_device(wish->location)) return driver::invalid_device;
    *granularity = granularity_;
    return driver::success;
  }
  int reserve(driver::Address* at, std::size_t bytes, std::size_t, driver::Address,
              unsigned long long flags) {
    if (bytes == 0 || bytes % granularity_ != 0 || flags != 0) return broken("reserve: size");
    void* const mapped = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *at = reinterpret_cast<driver::Address>(mapped);
    ranges_[*at] = bytes;
    return driver::success;
  }
  int unreserve(driver::Address at, std::size_t bytes) {
    if (!ranges_.contains(at) || ranges_[at] != bytes) return broken("free: a whole range");
    if (overlaps(at, bytes)) return broken("free: nothing is mapped");
    munmap(pointer(at), bytes);
    ranges_.erase(at);
    return driver::success;
  }
  int create(driver::Handle* handle, std::size_t bytes, const driver::AllocationProperties* wish,
             unsigned long long flags) {
    if (bytes == 0 || bytes % granularity_ != 0 || flags != 0) return broken("create: size");
    if (wish->type != driver::allocation_pinned || !is_device(wish->location) ||
        wish->requested_handle_types != driver::handle_none) {
      return broken("create: properties");
    }
    if (ftruncate(file_, static_cast<off_t>(file_bytes_ + bytes)) != 0) return out_of_memory;
    memories_.push_back({.offset = file_bytes_, .bytes = bytes, .device = wish->location.id});
    handles_[++last_handle_] = std::prev(memories_.end());
    *handle = last_handle_;
    file_bytes_ += bytes;
    bytes_held_[wish->location.id] += bytes;
    return driver::success;
  }
  int release(driver::Handle handle) {
    const auto found = handles_.find(handle);
    if (found == handles_.end()) return broken("release: twice");
    const MemoryPlace memory = found->second;
    handles_.erase(found);
    drop(memory);
    return driver::success;
  }
  int map(driver::Address at, std::size_t bytes, std::size_t offset, driver::Handle handle,
          unsigned long long flags) {
    const auto found = handles_.find(handle);
    if (found == handles_.end()) return broken("map: no such handle");
    const MemoryPlace memory = found->second;
    if (offset != 0 || flags != 0) return broken("map: offset 0");
    if (bytes != memory->bytes) return broken("map: a whole handle");
    if (!is_reserved(at, bytes)) return broken("map: outside of what is reserved");
    if (overlaps(at, bytes)) return broken("map: something is mapped here");
    mappings_[at] = {.bytes = bytes, .memory = memory, .devices = {}};
    ++memory->users;
    show(at, mappings_[at]);
    return driver::success;
  }
  /// Lets the host see the memory at the address of its mapping, where a device may.
  void show(driver::Address at, const Mapping& mapping) const {
    mmap(pointer(at), mapping.bytes, mapping.devices.empty() ? PROT_NONE : PROT_READ | PROT_WRITE,
         MAP_SHARED | MAP_FIXED, file_, static_cast<off_t>(mapping.memory->offset));
  }
  int unmap(driver::Address at, std::size_t bytes) {
    driver::Address end = at;
    for (auto next = mappings_.find(at); next != mappings_.end() && next->first == end &&
                                         next->first + next->second.bytes <= at + bytes;
         ++next) {
      end += next->second.bytes;
    }
    if (bytes == 0 || end != at + bytes) return broken("unmap: whole mappings, without gaps");
    mmap(pointer(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    while (at < end) {
      const auto found = mappings_.find(at);
      at += found->second.bytes;
      const MemoryPlace memory = found->second.memory;
      mappings_.erase(found);
      drop(memory);
    }
    return driver::success;
  }
  int set_access(driver::Address at, std::size_t bytes, const driver::AccessDescription* access,
                 std::size_t count) {
    std::vector<int> devices;
    for (std::size_t i = 0; i < count; ++i) {
      if (access[i].flags != driver::access_read_write) return broken("access: to read and write");
      if (!is_device(access[i].location)) return driver::invalid_device;
      devices.push_back(access[i].location.id);
    }
    driver::Address end = at;
    while (end < at + bytes) {
      const auto found = mappings_.find(end);
      if (found == mappings_.end()) return broken("access: all of it is mapped");
      for (const int device : devices) {
        if (device != found->second.memory->device && !are_peers_) return driver::invalid_device;
      }
      end += found->second.bytes;
    }
    if (devices.empty() || end != at + bytes) return broken("access: devices, whole mappings");
    for (auto each = mappings_.find(at); each != mappings_.end() && each->first < end; ++each) {
      for (const int device : devices) {
        auto& all = each->second.devices;
        if (std::count(all.begin(), all.end(), device) == 0) all.push_back(device);
      }
    }
    mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE);
    return driver::success;
  }
  int fill(driver::Address at, unsigned char value, std::size_t bytes) {
    const auto any_may = [](const Mapping& mapping) { return !mapping.devices.empty(); };
    if (!is_covered(at, bytes, any_may)) return broken("fill: mapped");
    fills_.push_back({.at = at, .bytes = bytes, .value = value});
    return driver::success;
  }
  /// What the legacy stream has not done yet, and nothing else waits for.
  int do_fills() {
    for (const Fill& fill : fills_) {
      std::fill_n(static_cast<unsigned char*>(pointer(fill.at)), fill.bytes, fill.value);
    }
    fills_.clear();
    return driver::success;
  }

  void drop(MemoryPlace memory) {
    if (--memory->users > 0) return;
    punch(*memory);
    bytes_held_[memory->device] -= memory->bytes;
    memories_.erase(memory);
  }
  void punch(const Memory& memory) const {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(memory.offset),
              static_cast<off_t>(memory.bytes));
  }

  std::mutex mutex_;  // as a driver's calls, these come from any thread
  static inline FakeDriver* current_ = nullptr;
  FakeDriver* outer_;

  const pid_t process_ = getpid();
  std::size_t granularity_;
  int devices_ = 1;
  bool are_peers_ = true;
  int file_ = -1;
  std::size_t file_bytes_ = 0;
  int calls_ = 0;
  double call_seconds_ = 4e-6;
  int refuse_at_ = 0;
  driver::Handle last_handle_ = 0;
  std::map<driver::Address, std::size_t> ranges_;
  std::map<driver::Address, Mapping> mappings_;
  std::map<driver::Handle, MemoryPlace> handles_;
  std::list<Memory> memories_;
  std::map<int, std::size_t> bytes_held_;  // by device
  std::vector<Fill> fills_;
  std::vector<std::string> broken_;
};

}  // namespace hyb::kernels::testing
