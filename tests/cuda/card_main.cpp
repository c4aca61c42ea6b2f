#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <string_view>

#include "app/machine/environment.h"

/// Without a card the tests are skipped: 77 is ctest's SKIP_RETURN_CODE. Listing them needs no
/// card.
int main(int count, char** arguments) {
  const bool lists = count > 1 && std::string_view(arguments[1]).starts_with("--list");
  if (lists) return doctest::Context(count, arguments).run();
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
  hyb::app::prepare_cards(hyb::app::read_environment());
  return doctest::Context(count, arguments).run();
}
