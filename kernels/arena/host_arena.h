#pragma once

#include "kernels/arena/arena.h"
#include "kernels/arena/handle_table.h"

namespace hyb::kernels {

/// The memory of this machine: handles are pieces of one anonymous file, mapped shared, so that one
/// physical page can stand at several addresses. An untouched handle holds no memory, not even when
/// it is mapped; one that was touched holds it until release(), which punches a hole in the file
/// (dropping the mappings alone frees nothing).
class HostArena final : public Arena {
 public:
  /// `handle_bytes` is a multiple of the system's page. Throws Error(memory).
  explicit HostArena(std::size_t handle_bytes);
  ~HostArena() override;

  /// So many bytes can be in handles: the limit on the size of a file (ulimit -f).
  static std::size_t bytes_max();

  std::byte* reserve(std::size_t bytes) override;
  void unreserve(std::byte* at, std::size_t bytes) override;
  HandleId create() override;
  void release(HandleId handle) override;
  void map(std::byte* at, std::span<const HandleId> handles) override;
  void unmap(std::byte* at, HandleId handle) override;
  ExportedHandle export_handle(HandleId handle) const override;
  void fill(std::byte* at, std::size_t bytes, std::byte value) override;
  std::size_t mappings_max() const override;
  std::size_t handles_held() const override { return table_.held(); }

 private:
  std::size_t offset(HandleId handle) const;
  void grow(std::size_t bytes);

  HandleTable table_;
  int file_ = -1;
  std::size_t file_bytes_ = 0;
};

}  // namespace hyb::kernels
