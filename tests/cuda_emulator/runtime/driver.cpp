#include "tests/cuda_emulator/driver.h"

#include "kernels/cuda/driver.h"

namespace hyb::kernels::cuda {

/// Of a driver that lives as long as the process. Its units are small, so that the pools of tiny
/// models can be cut into superblocks.
DriverTable driver() {
  static testing::FakeDriver emulated;
  return emulator::driver_table();
}

/// This machine's would query this machine's card.
CublasLt matrix_library() { return {.table = {}, .text = "none: the card is emulated"}; }

}  // namespace hyb::kernels::cuda
