#include "kernels/cuda/driver.h"

#include "kernels/cuda/check.h"

namespace hyb::kernels::cuda {

DriverTable driver() {
  check(cudaFree(nullptr), "cudaFree");  // makes the primary context
  return load_driver();
}

}  // namespace hyb::kernels::cuda
