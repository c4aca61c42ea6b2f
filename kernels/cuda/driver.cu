#include "kernels/cuda/driver.h"

#include "kernels/cuda/launch.h"

namespace hyb::kernels::cuda {

DriverTable driver() {
  check(cudaFree(nullptr), "cudaFree");  // makes the primary context
  return load_driver();
}

CublasLt matrix_library() { return open_cublaslt(); }

}  // namespace hyb::kernels::cuda
