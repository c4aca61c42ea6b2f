#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstdio>

/// On a machine without a card nothing is tested, and that is said: 77 is ctest's "skipped".
int main(int count, char** arguments) {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess) {
    std::printf("hyb_tests_cuda: no CUDA device, nothing was tested (%s)\n",
                cudaGetErrorString(error));
    return 77;
  }
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  std::printf("hyb_tests_cuda: on %s, sm_%d%d\n", properties.name, properties.major,
              properties.minor);
  return doctest::Context(count, arguments).run();
}
