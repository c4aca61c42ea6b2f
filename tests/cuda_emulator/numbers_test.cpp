#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

using namespace emulator::testing;
using namespace hyb::kernels;

namespace {

struct Numbers {
  const float *a, *b;
  float* quotients;
};

__global__ void divide_kernel(Numbers p) {
  p.quotients[threadIdx.x] = cuda::divide_fast(p.a[threadIdx.x], p.b[threadIdx.x]);
}

TEST_SUITE("cuda_emulator/numbers") {
  TEST_CASE("divide_fast is a quotient, and zero above 2^126") {
    const DeviceArray<float> a({1, -3, 1e30F, 5}), b({4, 0.5F, 0x1p127F, -0x1p126F}), quotients(4);
    REQUIRE(launch({.threads = 4}, divide_kernel, Numbers{a.data(), b.data(), quotients.data()}) ==
            cudaSuccess);
    CHECK(quotients.values() == std::vector<float>{0.25F, -6, 0, -5 * 0x1p-126F});
  }
}

}  // namespace
