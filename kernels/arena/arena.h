#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hyb::kernels {

/// Name of one piece of physical memory of an Arena. Names are used again after release().
enum class HandleId : std::int32_t {};

constexpr std::int32_t index(HandleId handle) { return static_cast<std::int32_t>(handle); }

/// Virtual addresses and physical memory of a device, apart from each other: addresses are reserved
/// in ranges, memory is created in handles of one size, and a handle may be mapped at any number of
/// addresses, all of which then show the same bytes. Addresses and sizes are multiples of
/// handle_bytes(). Memory comes zeroed from the CPU and with any content from CUDA.
///
/// An arena without aliases() is less: each address has bytes of its own, zeros when it is mapped
/// and lost when it is unmapped; so a handle is only of use at one place at a time.
///
/// Every call either does all of what it says or throws Error(memory) with the numbers and changes
/// nothing. Calls that break the rules (a handle mapped twice at one place, released while mapped)
/// are bugs of ours. Not for use from several threads at once.
class Arena {
 public:
  explicit Arena(std::size_t handle_bytes) : handle_bytes_(handle_bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  /// Every range is unreserved and every handle released by then.
  virtual ~Arena() = default;

  std::size_t handle_bytes() const { return handle_bytes_; }
  virtual bool aliases() const { return true; }

  /// Addresses that are not backed by memory: touching one faults.
  virtual std::byte* reserve(std::size_t bytes) = 0;

  /// Gives a whole range back. Nothing is mapped in it.
  virtual void unreserve(std::byte* at, std::size_t bytes) = 0;

  /// Physical memory of handle_bytes(). On the CPU it costs nothing before it is touched.
  virtual HandleId create() = 0;

  /// Gives the memory back to the machine. The handle is mapped nowhere.
  virtual void release(HandleId handle) = 0;

  /// Lets `handles` be read and written at `at`, one after another, inside a reserved range
  /// where nothing is mapped.
  virtual void map(std::byte* at, std::span<const HandleId> handles) = 0;

  /// Takes back what is mapped at `at`, which is `handles`, one after another: touching it faults
  /// from now on. The bytes of the handles stay as they are. One call of the system, however they
  /// were mapped.
  virtual void unmap(std::byte* at, std::span<const HandleId> handles) = 0;

  /// Writes `value` to every byte of a mapped range.
  virtual void fill(std::byte* at, std::size_t bytes, std::byte value) = 0;

  /// Faults a mapped range in, so that its first use does not; its bytes stay as they are. From any
  /// thread, also while others use the range or arena. False: this memory needs none of that, or
  /// the system cannot (Linux before 5.14) or has no memory now; then its first use faults.
  virtual bool populate(std::byte*, std::size_t) const { return false; }

  /// Returns how many pieces may be mapped before the system refuses more (adjacent pieces that are
  /// adjacent in memory, too, count once).
  virtual std::size_t mappings_max() const = 0;

  virtual std::size_t handles_held() const = 0;
  std::size_t bytes_held() const { return handles_held() * handle_bytes_; }

 private:
  std::size_t handle_bytes_;
};

/// The handles of an arena that exist, and the number of places where each is mapped. The lowest
/// free name is given out first, so that handles created one after the other are neighbours. The
/// checks throw on broken rules: bugs of ours.
class HandleTable {
 public:
  HandleId add();
  void remove(HandleId handle);

  void map(std::span<const HandleId> handles);
  void unmap(std::span<const HandleId> handles);

  void check_exists(HandleId handle) const;
  void check_mapped(std::span<const HandleId> handles) const;
  void check_unmapped(HandleId handle) const;

  std::size_t held() const { return held_; }

 private:
  static constexpr std::int32_t free = -1;

  std::int32_t uses(HandleId handle) const;
  std::int32_t& uses_at(HandleId handle) { return uses_[static_cast<std::size_t>(index(handle))]; }

  std::vector<std::int32_t> uses_;  // places where a handle is mapped, or `free`
  std::size_t lowest_free_ = 0;     // nothing below it is free
  std::size_t held_ = 0;
};

}  // namespace hyb::kernels
