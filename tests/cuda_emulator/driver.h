#pragma once

#include <mutex>

#include "kernels/arena/driver_table.h"
#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/runtime/machine.h"
#include "tests/kernels/arena/fake_driver.h"

namespace emulator {

/// CUDA's virtual-memory calls for the emulated device: those of the FakeDriver that lives, which
/// keeps the driver's rules and can refuse the n-th call; what is mapped is the device's memory to
/// kernels and copies. Unlike allocations it is open to the host.
inline hyb::kernels::DriverTable driver_table() {
  using hyb::kernels::testing::FakeDriver;
  namespace driver = hyb::kernels::driver;
  static const hyb::kernels::DriverTable inner = FakeDriver::table();
  hyb::kernels::DriverTable table = inner;
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
    if (result == driver::success) device_memory().remove_mapping(reinterpret_cast<void*>(at));
    return result;
  };
  return table;
}

}  // namespace emulator
