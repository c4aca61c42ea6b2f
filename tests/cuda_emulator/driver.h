#pragma once

#include <map>
#include <mutex>

#include "kernels/arena/cuda_arena.h"
#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/runtime/machine.h"
#include "tests/kernels/arena/fake_driver.h"

namespace emulator {

/// CUDA's virtual-memory calls for the emulated device: those of the FakeDriver that lives, which
/// keeps the driver's rules and can refuse the n-th call, or the ledger does; what is mapped is the
/// device's memory to kernels and copies. Unlike allocations it is open to the host.
inline hyb::kernels::DriverTable driver_table() {
  using hyb::kernels::testing::FakeDriver;
  namespace driver = hyb::kernels::driver;
  static const hyb::kernels::DriverTable inner = FakeDriver::table();
  hyb::kernels::DriverTable table = inner;
  static std::map<driver::Handle, std::size_t> handle_bytes;
  table.mem_create = [](driver::Handle* handle, std::size_t bytes, auto... more) {
    const std::lock_guard lock(machine().mutex);
    if (!ledger().take(Holder::handle, bytes)) return FakeDriver::out_of_memory;
    const int result = inner.mem_create(handle, bytes, more...);
    if (result == driver::success) {
      handle_bytes[*handle] = bytes;
    } else {
      ledger().give_back(Holder::handle, bytes);
    }
    return result;
  };
  table.mem_release = [](driver::Handle handle) {
    const std::lock_guard lock(machine().mutex);
    const int result = inner.mem_release(handle);
    if (result == driver::success) {
      ledger().give_back(Holder::handle, handle_bytes[handle]);
      handle_bytes.erase(handle);
    }
    return result;
  };
  table.mem_map = [](driver::Address at, std::size_t bytes, auto... more) {
    const std::lock_guard lock(machine().mutex);  // another thread's kernels see the mappings
    const int result = inner.mem_map(at, bytes, more...);
    if (result == driver::success) {
      device_memory().add_mapping(reinterpret_cast<void*>(at), bytes);
    }
    return result;
  };
  table.mem_unmap = [](driver::Address at, std::size_t bytes) {
    const std::lock_guard lock(machine().mutex);
    const int result = inner.mem_unmap(at, bytes);
    if (result == driver::success) {
      device_memory().remove_mappings(reinterpret_cast<void*>(at), bytes);
    }
    return result;
  };
  table.memset_d8 = [](auto... values) {
    return is_recording_only() ? driver::success : inner.memset_d8(values...);
  };
  return table;
}

}  // namespace emulator
