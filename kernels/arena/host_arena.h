#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/arena/arena.h"

namespace hyb::kernels {

/// The memory of this machine: handles are pieces of one anonymous file, mapped shared, so that one
/// physical page can be mapped at several addresses. An untouched handle holds no memory, not even
/// when it is mapped; one that was touched holds it until release(), which punches a hole in the
/// file (dropping the mappings alone frees nothing).
class HostArena final : public Arena {
 public:
  /// `handle_bytes` is a multiple of the system's page. Throws Error(memory).
  explicit HostArena(std::size_t handle_bytes);
  ~HostArena() override;

  /// Returns how many bytes handles can hold: the limit on the size of a file (ulimit -f).
  static std::size_t bytes_max();

  std::byte* reserve(std::size_t bytes) override;
  void unreserve(std::byte* at, std::size_t bytes) override;
  HandleId create() override;
  void release(HandleId handle) override;
  void map(std::byte* at, std::span<const HandleId> handles) override;
  void unmap(std::byte* at, std::span<const HandleId> handles) override;
  void fill(std::byte* at, std::size_t bytes, std::byte value) override;
  bool populate(std::byte* at, std::size_t bytes) const override;
  std::size_t mappings_max() const override;
  std::size_t handles_held() const override { return table_.held(); }

 private:
  std::size_t offset(HandleId handle) const;
  void grow(std::size_t bytes);

  HandleTable table_;
  int file_ = -1;
  std::size_t file_bytes_ = 0;
};

/// Says what is found at an address that nothing is mapped to.
enum class Unmapped : std::uint8_t {
  faults,  ///< a fault; every neighbourhood of handles is a mapping of its own
  zeros,   ///< zeros, which cost nothing until they are written: a range stays one mapping
};

/// The memory of this machine for handles that are mapped at one place only. Nothing aliases: a
/// mapping starts with zeros, and unmapping frees its bytes.
class AnonymousArena : public Arena {
 public:
  bool aliases() const override { return false; }
  void unreserve(std::byte* at, std::size_t bytes) override;
  HandleId create() override { return table_.add(); }
  void release(HandleId handle) override { table_.remove(handle); }
  void map(std::byte* at, std::span<const HandleId> handles) override;
  void unmap(std::byte* at, std::span<const HandleId> handles) override;
  void fill(std::byte* at, std::size_t bytes, std::byte value) override;
  bool populate(std::byte* at, std::size_t bytes) const override;
  std::size_t handles_held() const override { return table_.held(); }

 protected:
  /// `handle_bytes` is a multiple of the system's page.
  explicit AnonymousArena(std::size_t handle_bytes);

 private:
  /// False, with errno, where it is refused.
  virtual bool map_bytes(std::byte* at, std::size_t bytes) = 0;
  virtual bool free_bytes(std::byte* at, std::size_t bytes) = 0;

  HandleTable table_;
};

/// Ordinary private memory, for which systems use huge pages more readily than for shared memory,
/// and which no limit on the size of files (ulimit -f) touches.
class PrivateArena final : public AnonymousArena {
 public:
  explicit PrivateArena(std::size_t handle_bytes, Unmapped unmapped = Unmapped::faults);

  std::byte* reserve(std::size_t bytes) override;
  std::size_t mappings_max() const override;

 private:
  bool map_bytes(std::byte* at, std::size_t bytes) override;
  bool free_bytes(std::byte* at, std::size_t bytes) override;

  Unmapped unmapped_;
};

/// Memory of this process and of those that are forked from it once a range is reserved: at the
/// same addresses they have the same bytes, whichever maps and unmaps. Addresses that nothing is
/// mapped to read as zeros. The bytes end with the last process that has them.
class SharedArena final : public AnonymousArena {
 public:
  explicit SharedArena(std::size_t handle_bytes);

  std::byte* reserve(std::size_t bytes) override;
  std::size_t mappings_max() const override;

 private:
  bool map_bytes(std::byte* at, std::size_t bytes) override;
  bool free_bytes(std::byte* at, std::size_t bytes) override;
};

/// Virtual addresses of this process, for arenas over the machine's own memory. Failures throw
/// Error(memory) that names the call, its bytes and `bytes_held`.
namespace host_memory {

/// A multiple of the system's page, and not 0.
void check_handle_bytes(std::size_t handle_bytes);

/// Addresses that fault, aligned for huge pages.
std::byte* reserve(std::size_t bytes, std::size_t bytes_held);
void unreserve(std::byte* at, std::size_t bytes, std::size_t bytes_held);

/// Makes a part of a reserved range fault again. False: refused, see errno.
bool clear(std::byte* at, std::size_t bytes);

/// Asks for huge pages: a hint, the bytes are the same without.
void prefer_huge_pages(std::byte* at, std::size_t bytes);

/// Works as Arena::populate.
bool populate(std::byte* at, std::size_t bytes);

/// Mappings that the system still allows this process, some left aside for others.
std::size_t mappings_max();

[[noreturn]] void refuse(const char* call, std::size_t bytes, int error, std::size_t bytes_held);

}  // namespace host_memory

}  // namespace hyb::kernels
