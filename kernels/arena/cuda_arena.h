#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "kernels/arena/arena.h"

struct CUstream_st;

namespace hyb::kernels {

/// The part of CUDA's driver interface that an arena needs, declared here so that nothing of CUDA
/// is needed to build, and held as pointers so that tests can substitute a driver of their own.
/// Layouts and numbers are those of cuda.h since CUDA 11 (its *_v1 structs).
namespace driver {

using Result = int;
using Address = unsigned long long;
using Handle = unsigned long long;

inline constexpr Result success = 0;
inline constexpr Result invalid_device = 101;  ///< CUDA_ERROR_INVALID_DEVICE
inline constexpr Result not_supported = 801;   ///< CUDA_ERROR_NOT_SUPPORTED
inline constexpr int allocation_pinned = 1;    ///< CU_MEM_ALLOCATION_TYPE_PINNED
inline constexpr int handle_none = 0;          ///< CU_MEM_HANDLE_TYPE_NONE
inline constexpr int location_device = 1;      ///< CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int access_read_write = 3;    ///< CU_MEM_ACCESS_FLAGS_PROT_READWRITE
inline constexpr int granularity_minimum = 0;  ///< CU_MEM_ALLOC_GRANULARITY_MINIMUM

struct Location {
  int type;
  int id;
};

struct AllocationProperties {
  int type;
  int requested_handle_types;
  Location location;
  void* win32_meta_data;
  struct {
    unsigned char compression;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};

struct AccessDescription {
  Location location;
  int flags;
};

}  // namespace driver

/// The functions by their names in libcuda, less the `cu`.
struct DriverTable {
  driver::Result (*get_error_name)(driver::Result, const char** name) = nullptr;
  driver::Result (*mem_get_allocation_granularity)(std::size_t* granularity,
                                                   const driver::AllocationProperties*,
                                                   int option) = nullptr;
  driver::Result (*mem_address_reserve)(driver::Address*, std::size_t bytes, std::size_t alignment,
                                        driver::Address wanted, unsigned long long flags) = nullptr;
  driver::Result (*mem_address_free)(driver::Address, std::size_t bytes) = nullptr;
  driver::Result (*mem_create)(driver::Handle*, std::size_t bytes,
                               const driver::AllocationProperties*,
                               unsigned long long flags) = nullptr;
  driver::Result (*mem_release)(driver::Handle) = nullptr;
  driver::Result (*mem_map)(driver::Address, std::size_t bytes, std::size_t offset, driver::Handle,
                            unsigned long long flags) = nullptr;
  driver::Result (*mem_unmap)(driver::Address, std::size_t bytes) = nullptr;
  driver::Result (*mem_set_access)(driver::Address, std::size_t bytes,
                                   const driver::AccessDescription*, std::size_t count) = nullptr;
  driver::Result (*memset_d8)(driver::Address, unsigned char value, std::size_t bytes) = nullptr;
  driver::Result (*stream_synchronize)(CUstream_st*) = nullptr;
  /// A clock for what calls take, in seconds, which tests substitute too.
  double (*now)() = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
};

/// Opens a driver library, libcuda.so.1 of this machine unless a test names another file, and keeps
/// it open until the process ends. Throws Error(usage) naming what is missing: the library, or a
/// function that a driver of CUDA 11 or later has.
DriverTable load_driver(const char* library = "libcuda.so.1");

/// The memory of one CUDA device, through the driver's virtual-memory calls. The caller has made a
/// device's primary context current. What is mapped can be read and written by the kernels of the
/// device and of its peers. Handles are mapped whole, at offset 0, because drivers accept
/// nothing else everywhere. Mappings may change between two replays of a graph: graphs hold
/// addresses only.
class CudaArena final : public Arena {
 public:
  /// `peers`: other devices, which can reach the device's memory (cudaDeviceCanAccessPeer) and
  /// whose primary contexts exist. Where the driver refuses one all the same, map() throws
  /// Error(memory) with their numbers. Throws Error(usage) when the driver cannot make handles of
  /// this size, else Error(memory).
  CudaArena(const DriverTable& driver, int device, std::size_t handle_bytes,
            const std::vector<int>& peers = {});

  /// Returns what handles of a device are multiples of. Throws Error(memory) when the driver does
  /// not say.
  static std::size_t granularity(const DriverTable& driver, int device);

  std::byte* reserve(std::size_t bytes) override;
  void unreserve(std::byte* at, std::size_t bytes) override;
  HandleId create() override;
  void release(HandleId handle) override;
  void map(std::byte* at, std::span<const HandleId> handles) override;
  void unmap(std::byte* at, std::span<const HandleId> handles) override;
  void fill(std::byte* at, std::size_t bytes, std::byte value) override;
  std::size_t mappings_max() const override;
  std::size_t handles_held() const override { return table_.held(); }

 private:
  driver::Handle& handle_at(HandleId handle);
  void check_access(driver::Result result, std::size_t bytes) const;
  void check(driver::Result result, const char* call, std::size_t bytes) const;

  DriverTable driver_;
  driver::AllocationProperties properties_;
  std::vector<driver::AccessDescription> access_;  // of the device, then of its peers
  HandleTable table_;
  std::vector<driver::Handle> handles_;  // by HandleId
};

}  // namespace hyb::kernels
