#include "kernels/arena/cuda_arena.h"

#include <dlfcn.h>

#include <limits>
#include <string>

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb::kernels {
namespace {

template <typename Function>
void find(void* library, const char* library_name, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) {
    throw Error(ErrorKind::usage,
                fmt::format("cuda: {} has no {}; install a driver of CUDA 11 or later, or use "
                            "--device cpu",
                            library_name, name));
  }
}

}  // namespace

static_assert(sizeof(driver::AllocationProperties) == 32, "as in cuda.h");
static_assert(sizeof(driver::AccessDescription) == 12, "as in cuda.h");

DriverTable load_driver(const char* library_name) {
  void* const library = ::dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw Error(ErrorKind::usage,
                fmt::format("cuda: no driver on this machine ({}); use --device cpu",
                            why == nullptr ? library_name : why));
  }
  const auto bind = [&](const char* name, auto& function) {
    find(library, library_name, name, function);
  };
  DriverTable table;
  bind("cuGetErrorName", table.get_error_name);
  bind("cuMemGetAllocationGranularity", table.mem_get_allocation_granularity);
  bind("cuMemAddressReserve", table.mem_address_reserve);
  bind("cuMemAddressFree", table.mem_address_free);
  bind("cuMemCreate", table.mem_create);
  bind("cuMemRelease", table.mem_release);
  bind("cuMemMap", table.mem_map);
  bind("cuMemUnmap", table.mem_unmap);
  bind("cuMemSetAccess", table.mem_set_access);
  bind("cuMemsetD8_v2", table.memset_d8);
  bind("cuStreamSynchronize", table.stream_synchronize);
  return table;
}

namespace {

driver::Address address(const std::byte* at) { return reinterpret_cast<driver::Address>(at); }

driver::Location location_of(int device) { return {.type = driver::location_device, .id = device}; }

driver::AllocationProperties properties_of(int device) {
  return {.type = driver::allocation_pinned,
          .requested_handle_types = driver::handle_none,
          .location = location_of(device),
          .win32_meta_data = nullptr,
          .flags = {}};
}

}  // namespace

std::size_t CudaArena::granularity(const DriverTable& driver, int device) {
  const driver::AllocationProperties properties = properties_of(device);
  std::size_t bytes = 0;
  const driver::Result result =
      driver.mem_get_allocation_granularity(&bytes, &properties, driver::granularity_minimum);
  if (result != driver::success || bytes == 0) {
    throw Error(ErrorKind::memory,
                fmt::format("cuda: device {} has no virtual memory that can be mapped "
                            "(cuMemGetAllocationGranularity: {}); use --device cpu",
                            device, result));
  }
  return bytes;
}

CudaArena::CudaArena(const DriverTable& driver, int device, std::size_t handle_bytes,
                     const std::vector<int>& peers)
    : Arena(handle_bytes), driver_(driver), properties_(properties_of(device)) {
  const auto add_access = [&](int reader) {
    access_.push_back({.location = location_of(reader), .flags = driver::access_read_write});
  };
  add_access(device);
  for (const int peer : peers) add_access(peer);
  const std::size_t unit = granularity(driver, device);
  if (handle_bytes == 0 || handle_bytes % unit != 0) {
    throw Error(ErrorKind::usage,
                fmt::format("memory: device {} has memory in units of {} bytes, not of {}; set the "
                            "handle size to a multiple of it",
                            device, unit, handle_bytes));
  }
}

std::byte* CudaArena::reserve(std::size_t bytes) {
  driver::Address at = 0;
  check(driver_.mem_address_reserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve", bytes);
  return reinterpret_cast<std::byte*>(at);
}

void CudaArena::unreserve(std::byte* at, std::size_t bytes) {
  check(driver_.mem_address_free(address(at), bytes), "cuMemAddressFree", bytes);
}

HandleId CudaArena::create() {
  const HandleId handle = table_.add();
  try {
    if (static_cast<std::size_t>(index(handle)) >= handles_.size()) handles_.push_back(0);
    check(driver_.mem_create(&handle_at(handle), handle_bytes(), &properties_, 0), "cuMemCreate",
          handle_bytes());
  } catch (...) {
    table_.remove(handle);
    throw;
  }
  return handle;
}

void CudaArena::release(HandleId handle) {
  table_.check_unmapped(handle);
  check(driver_.mem_release(handle_at(handle)), "cuMemRelease", handle_bytes());
  table_.remove(handle);
}

void CudaArena::map(std::byte* at, std::span<const HandleId> handles) {
  for (const HandleId handle : handles) table_.check_exists(handle);
  std::size_t mapped = 0;
  try {
    for (const HandleId handle : handles) {
      check(driver_.mem_map(address(at) + mapped * handle_bytes(), handle_bytes(), 0,
                            handle_at(handle), 0),
            "cuMemMap", handle_bytes());
      ++mapped;
    }
    const std::size_t bytes = handles.size() * handle_bytes();
    check_access(driver_.mem_set_access(address(at), bytes, access_.data(), access_.size()), bytes);
  } catch (...) {
    // Undoes what it can; only the first failure is reported.
    if (mapped > 0) driver_.mem_unmap(address(at), mapped * handle_bytes());
    throw;
  }
  table_.map(handles);
}

void CudaArena::unmap(std::byte* at, std::span<const HandleId> handles) {
  table_.check_mapped(handles);
  const std::size_t bytes = handles.size() * handle_bytes();
  check(driver_.mem_unmap(address(at), bytes), "cuMemUnmap", bytes);
  table_.unmap(handles);
}

void CudaArena::fill(std::byte* at, std::size_t bytes, std::byte value) {
  check(driver_.memset_d8(address(at), std::to_integer<unsigned char>(value), bytes), "cuMemsetD8",
        bytes);
  // The fill is on the legacy stream, and the work that reads it on one that does not wait for
  // that.
  check(driver_.stream_synchronize(nullptr), "cuStreamSynchronize", bytes);
}

std::size_t CudaArena::mappings_max() const { return std::numeric_limits<std::size_t>::max(); }

driver::Handle& CudaArena::handle_at(HandleId handle) {
  return handles_[static_cast<std::size_t>(index(handle))];
}

void CudaArena::check_access(driver::Result result, std::size_t bytes) const {
  const bool is_of_peers = result == driver::invalid_device || result == driver::not_supported;
  if (!is_of_peers || access_.size() == 1) return check(result, "cuMemSetAccess", bytes);
  std::string peers;
  for (const driver::AccessDescription& access : std::span(access_).subspan(1)) {
    peers += (peers.empty() ? "" : ", ") + std::to_string(access.location.id);
  }
  throw Error(ErrorKind::usage,
              fmt::format("memory: the driver maps no memory of device {} for device {} "
                          "(cuMemSetAccess: {}); use one device",
                          access_.front().location.id, peers, result));
}

void CudaArena::check(driver::Result result, const char* call, std::size_t bytes) const {
  if (result == driver::success) return;
  const char* name = nullptr;
  if (driver_.get_error_name(result, &name) != driver::success || name == nullptr) name = "?";
  throw Error(ErrorKind::memory,
              fmt::format("memory: {} of {} bytes was refused ({}, {}); {} bytes are in handles; "
                          "use a smaller --memory",
                          call, bytes, name, result, bytes_held()));
}

}  // namespace hyb::kernels
