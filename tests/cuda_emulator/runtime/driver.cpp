#include "tests/cuda_emulator/driver.h"

#include "kernels/cuda/driver.h"

namespace hyb::kernels::cuda {

/// Of a driver that lives as long as the process.
DriverTable driver() {
  static testing::FakeDriver emulated(std::size_t{2} << 20);
  return emulator::driver_table();
}

}  // namespace hyb::kernels::cuda
