#pragma once

#include <vector>

#include "kernels/arena/arena.h"
#include "kernels/arena/driver_table.h"
#include "kernels/arena/handle_table.h"

namespace hyb::kernels {

/// The memory of one CUDA device, through the driver's virtual-memory calls. The caller has made a
/// device's primary context current. Handles can be exported (POSIX descriptors), and are mapped
/// whole, at offset 0, because drivers accept nothing else everywhere. Mappings may change between
/// two replays of a graph: graphs hold addresses only.
class CudaArena final : public Arena {
 public:
  /// Throws Error(usage) when the driver can't make handles of this size, else Error(memory).
  CudaArena(const DriverTable& driver, int device, std::size_t handle_bytes);

  /// What handles of a device are multiples of. Throws Error(memory) when the driver does not say.
  static std::size_t granularity(const DriverTable& driver, int device);

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
  driver::Handle& handle_at(HandleId handle);
  void check(driver::Result result, const char* call, std::size_t bytes) const;

  DriverTable driver_;
  driver::AllocationProperties properties_;
  HandleTable table_;
  std::vector<driver::Handle> handles_;  // by HandleId
};

}  // namespace hyb::kernels
