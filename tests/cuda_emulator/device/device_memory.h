#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace emulator {

/// What memory is requested: by cudaMalloc, for physical handles, for graphs; and the host's
/// pinned.
enum class Holder : std::uint8_t { allocation, handle, graph, pinned };

/// How many bytes of the card each purpose holds, and which requests for more it refuses. Calls
/// come from one host thread at a time.
class Ledger {
 public:
  /// False, and nothing is counted: refused.
  bool take(Holder holder, std::size_t bytes);
  void give_back(Holder holder, std::size_t bytes);

  std::size_t bytes(Holder holder) const { return bytes_[static_cast<std::size_t>(holder)]; }
  /// Of all but pinned memory, which is the host's.
  std::size_t device_bytes() const;
  std::size_t free_bytes() const;

  /// Requests so far, refused ones too.
  std::int64_t requests() const { return requests_; }
  /// Refuses the n-th request from now on, the first being 1, and the `count` - 1 after it; 0:
  /// none.
  void refuse(std::int64_t n, std::int64_t count = 1);

  std::size_t bytes_max = std::size_t{1} << 30;  ///< of the card

 private:
  std::array<std::size_t, 4> bytes_{};
  std::int64_t requests_ = 0;
  std::int64_t refuse_first_ = 0, refuse_end_ = 0;
};

Ledger& ledger();

/// The device's memory, and the host's pinned memory. An allocation ends at a page that may not be
/// touched, and begins as 0xff bytes (NaN). Kernels and the copies of the runtime see it; to the
/// host's code it is closed, as on a card. Calls come from one host thread at a time.
class DeviceMemory {
 public:
  static constexpr std::size_t alignment = 256;  ///< of cudaMalloc

  /// Null when not enough is left.
  void* allocate(std::size_t bytes);
  /// From now on allocations are address ranges that no one may touch.
  void reserve_only() { reserves_only_ = true; }
  /// False when no allocation begins here.
  bool release(void* at);
  bool is_allocation(const void* at) const { return ranges_.contains(address(at)); }

  /// Is all of it inside of one allocation, or of mappings of the device that adjoin?
  bool contains(const void* at, std::size_t bytes) const;
  /// Is it inside of an allocation of the device, or just next to one?
  bool is_near(const void* at) const;

  /// Mappings of the virtual-memory calls are known, but open to the host.
  void add_mapping(void* at, std::size_t bytes);
  void remove_mappings(void* at, std::size_t bytes) {
    ranges_.erase(ranges_.lower_bound(address(at)), ranges_.lower_bound(address(at) + bytes));
  }

  void* allocate_pinned(std::size_t bytes);
  bool release_pinned(void* at);
  bool is_pinned(const void* at) const;

  /// Opens it to the threads of this process, and closes it again.
  void open();
  void close();

  /// What was written past an allocation, as text; empty when nothing was.
  std::string damage() const;
  void mend();  ///< forgets such damage

 private:
  struct Range {
    std::size_t bytes;
    std::byte* mapped = nullptr;  ///< null: a mapping from elsewhere
    std::size_t mapped_bytes = 0;
  };

  static std::uintptr_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }
  const std::pair<const std::uintptr_t, Range>* range_before(const void* at) const;

  std::map<std::uintptr_t, Range> ranges_;
  std::map<std::uintptr_t, std::size_t> pinned_;
  bool open_ = false, reserves_only_ = false;
};

DeviceMemory& device_memory();

}  // namespace emulator
