#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace emulator {

/// The device's memory, and the host's pinned memory. An allocation ends at a page that may not be
/// touched, and begins as 0xff bytes (NaN). Kernels and the copies of the runtime see it; to the
/// host's code it is closed, as on a card. Calls come from one host thread at a time.
class DeviceMemory {
 public:
  static constexpr std::size_t alignment = 256;  ///< of cudaMalloc

  /// Null when so much is not left.
  void* allocate(std::size_t bytes);
  /// False when no allocation begins here.
  bool release(void* at);
  bool is_allocation(const void* at) const { return ranges_.contains(address(at)); }

  /// Is all of it inside of one allocation, or of mappings of the device that adjoin?
  bool contains(const void* at, std::size_t bytes) const;
  /// Is it inside of an allocation of the device, or just beside one?
  bool is_near(const void* at) const;

  /// Mappings of the virtual-memory calls are known, but open to the host.
  void add_mapping(void* at, std::size_t bytes);
  void remove_mapping(void* at) { ranges_.erase(address(at)); }

  void* allocate_pinned(std::size_t bytes);
  bool release_pinned(void* at);
  bool is_pinned(const void* at) const;

  /// Opens it to the threads of this process, and closes it again.
  void open();
  void close();

  /// What was written behind an allocation, in words; empty when nothing was.
  std::string damage() const;
  void mend();  ///< forgets such damage

 private:
  struct Range {
    std::size_t bytes;
    std::byte* mapped = nullptr;  ///< null: a mapping of somebody else's
    std::size_t mapped_bytes = 0;
  };

  static std::uintptr_t address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }
  const std::pair<const std::uintptr_t, Range>* range_before(const void* at) const;

  std::map<std::uintptr_t, Range> ranges_;
  std::map<std::uintptr_t, std::size_t> pinned_;
  bool open_ = false;
};

DeviceMemory& device_memory();

}  // namespace emulator
