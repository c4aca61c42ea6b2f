#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/arena/cuda_arena.h"

namespace hyb::kernels::testing {

/// CUDA's virtual-memory calls over a file in memory. It keeps the driver's rules, records what
/// broke one, and can refuse the n-th call. table() is that of the youngest that lives.
class FakeDriver {
 public:
  static constexpr int invalid_value = 1;
  static constexpr int out_of_memory = 2;

  /// `exports`: it has handles for other processes.
  explicit FakeDriver(std::size_t granularity = 4096, bool exports = true)
      : granularity_(granularity), exports_(exports) {
    file_ = memfd_create("fake-driver", MFD_CLOEXEC);
    outer_ = std::exchange(current_, this);
  }
  ~FakeDriver() {
    current_ = outer_;
    close(file_);
  }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  static DriverTable table() {
    DriverTable table;
    table.get_error_name = [](int result, const char** name) {
      *name = result == out_of_memory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE";
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
    table.mem_export_to_shareable_handle = [](auto... values) {
      return current_->call([&] { return current_->export_handle(values...); });
    };
    table.memset_d8 = [](auto... values) {
      return current_->call([&] { return current_->fill(values...); });
    };
    table.stream_synchronize = [](CUstream_st*) {
      return current_->call([&] { return current_->do_fills(); });
    };
    return table;
  }

  /// Refuses the n-th call from now on, the first being 1; 0: none.
  void refuse_call(int n) { refuse_at_ = n == 0 ? 0 : calls_ + n; }
  int calls() const { return calls_; }
  const std::vector<std::string>& broken_rules() const { return broken_; }
  bool is_clean() const { return ranges_.empty() && mappings_.empty() && handles_.empty(); }
  std::size_t handles() const { return handles_.size(); }
  std::size_t mappings() const { return mappings_.size(); }

 private:
  struct Mapping {
    std::size_t bytes;
    driver::Handle handle;
    bool accessible;
  };
  struct Fill {
    driver::Address at;
    std::size_t bytes;
    unsigned char value;
  };
  struct Memory {
    std::size_t offset, bytes;
    int mappings = 0;
    bool released = false;
  };

  template <typename Action>
  int call(Action action) {
    if (++calls_ == refuse_at_) return out_of_memory;
    return action();
  }
  int broken(const char* rule) {
    broken_.emplace_back(rule);
    return invalid_value;
  }
  static void* pointer(driver::Address at) { return reinterpret_cast<void*>(at); }

  bool is_device(const driver::Location& location) const {
    return location.type == driver::location_device && location.id == 0;
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

  int granularity(std::size_t* granularity, const driver::AllocationProperties* wish, int) {
    if (wish->type != driver::allocation_pinned) return broken("granularity: type");
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
    if (!exports_ && wish->requested_handle_types != driver::handle_none) {
      return driver::not_supported;
    }
    if (wish->type != driver::allocation_pinned || !is_device(wish->location) ||
        (exports_ && wish->requested_handle_types != driver::handle_posix_descriptor)) {
      return broken("create: properties");
    }
    *handle = ++last_handle_;
    handles_[*handle] = {.offset = file_bytes_, .bytes = bytes};
    file_bytes_ += bytes;
    if (ftruncate(file_, static_cast<off_t>(file_bytes_)) != 0) return out_of_memory;
    return driver::success;
  }
  int release(driver::Handle handle) {
    if (!handles_.contains(handle) || handles_[handle].released) return broken("release: twice");
    handles_[handle].released = true;
    forget_unused(handle);
    return driver::success;
  }
  int map(driver::Address at, std::size_t bytes, std::size_t offset, driver::Handle handle,
          unsigned long long flags) {
    const auto found = handles_.find(handle);
    if (found == handles_.end() || found->second.released) return broken("map: no such handle");
    if (offset != 0 || flags != 0) return broken("map: offset 0");
    if (bytes != found->second.bytes) return broken("map: a whole handle");
    if (!is_reserved(at, bytes)) return broken("map: outside of what is reserved");
    if (overlaps(at, bytes)) return broken("map: something is mapped here");
    mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file_,
         static_cast<off_t>(found->second.offset));
    mappings_[at] = {.bytes = bytes, .handle = handle, .accessible = false};
    ++found->second.mappings;
    return driver::success;
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
      const driver::Handle handle = found->second.handle;
      mappings_.erase(found);
      --handles_[handle].mappings;
      forget_unused(handle);
    }
    return driver::success;
  }
  int set_access(driver::Address at, std::size_t bytes, const driver::AccessDescription* access,
                 std::size_t count) {
    if (count != 1 || !is_device(access->location) || access->flags != driver::access_read_write) {
      return broken("access: this device reads and writes");
    }
    for (driver::Address next = at; next < at + bytes;) {
      const auto found = mappings_.find(next);
      if (found == mappings_.end()) return broken("access: all of it is mapped");
      found->second.accessible = true;
      next += found->second.bytes;
      if (next > at + bytes) return broken("access: whole mappings");
    }
    mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE);
    return driver::success;
  }
  int export_handle(void* shareable, driver::Handle handle, int type, unsigned long long flags) {
    if (!handles_.contains(handle) || type != driver::handle_posix_descriptor || flags != 0) {
      return broken("export: a handle as a descriptor");
    }
    *static_cast<int*>(shareable) = dup(file_);
    return driver::success;
  }
  int fill(driver::Address at, unsigned char value, std::size_t bytes) {
    for (driver::Address next = at; next < at + bytes;) {
      const auto found = mappings_.find(next);
      if (found == mappings_.end() || !found->second.accessible) return broken("fill: mapped");
      next += found->second.bytes;
    }
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

  void forget_unused(driver::Handle handle) {
    const Memory& memory = handles_[handle];
    if (!memory.released || memory.mappings > 0) return;
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(memory.offset),
              static_cast<off_t>(memory.bytes));
    handles_.erase(handle);
  }

  static inline FakeDriver* current_ = nullptr;
  FakeDriver* outer_;

  std::size_t granularity_;
  bool exports_;
  int file_ = -1;
  std::size_t file_bytes_ = 0;
  int calls_ = 0;
  int refuse_at_ = 0;
  driver::Handle last_handle_ = 0;
  std::map<driver::Address, std::size_t> ranges_;
  std::map<driver::Address, Mapping> mappings_;
  std::map<driver::Handle, Memory> handles_;
  std::vector<Fill> fills_;
  std::vector<std::string> broken_;
};

}  // namespace hyb::kernels::testing
