#include <cmath>

#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/device/inexact.h"
#include "tests/cuda_emulator/support.h"

namespace numbers_test {

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

__global__ void subtract_kernel(Numbers p) {
  const float product = cuda::product_rounded(p.a[threadIdx.x], p.a[threadIdx.x]);
  p.quotients[threadIdx.x] = product - p.b[threadIdx.x];
}

constexpr int count = 256;

struct Functions {
  const float* x;
  float *powers, *sines, *cosines;
};

__global__ void functions_kernel(Functions p) {
  const int i = static_cast<int>(threadIdx.x);
  p.powers[i] = cuda::exp2_fast(p.x[i]);
  cuda::sine_cosine_of_turns(p.x[i] / 64.0F, p.sines[i], p.cosines[i]);
}

TEST_SUITE("cuda_emulator/numbers") {
  TEST_CASE("divide_fast is a quotient, and zero above 2^126") {
    const DeviceArray<float> a({1, -3, 1e30F, 5}), b({4, 0.5F, 0x1p127F, -0x1p126F}), quotients(4);
    REQUIRE(launch({.threads = 4}, divide_kernel, Numbers{a.data(), b.data(), quotients.data()}) ==
            cudaSuccess);
    CHECK(quotients.values() == std::vector<float>{0.25F, -6, 0, -5 * 0x1p-126F});
  }

  TEST_CASE("inexact functions are off by their contracts' bounds, the same way each time") {
    const DeviceArray<float> a({1, 1, 1, 3}), b({3, 3, 7, 11}), quotients(4);
    emulator::is_inexact = true;
    REQUIRE(launch({.threads = 4}, divide_kernel, Numbers{a.data(), b.data(), quotients.data()}) ==
            cudaSuccess);
    const std::vector<float> off = quotients.values();
    emulator::is_inexact = false;
    CHECK(off[0] == off[1]);
    const float exact[] = {1.0F / 3, 1.0F / 3, 1.0F / 7, 3.0F / 11};
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(off[i] != exact[i]);
      CHECK(std::fabs(off[i] - exact[i]) <= 2 * 0x1p-23F * exact[i]);
    }
  }

  TEST_CASE("product_rounded is rounded before anything is subtracted from it") {
    const float x = 1.0F + 0x1p-12F;  // its square needs 25 bits
    const DeviceArray<float> a({x, -x}), b({1.0F + 0x1p-11F, 0}), differences(2);
    REQUIRE(launch({.threads = 2}, subtract_kernel,
                   Numbers{a.data(), b.data(), differences.data()}) == cudaSuccess);
    CHECK(differences.values() == std::vector<float>{0, 1.0F + 0x1p-11F});
  }

  TEST_CASE("powers of two, sines and cosines are within the bounds of their contracts") {
    std::vector<float> x;
    for (int i = 1; i < count; ++i) x.push_back(static_cast<float>(i - 128) / 4);
    x.push_back(-INFINITY);
    const DeviceArray<float> in(x), powers(count), sines(count), cosines(count);
    REQUIRE(launch({.threads = count}, functions_kernel,
                   Functions{in.data(), powers.data(), sines.data(), cosines.data()}) ==
            cudaSuccess);
    const auto power = powers.values(), sine = sines.values(), cosine = cosines.values();
    CHECK(power.back() == 0.0F);
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      const double exact = std::exp2(static_cast<double>(x[i])), angle = x[i] / 64 * 2 * M_PI;
      CHECK(std::fabs(power[i] - exact) <= 0x1p-22 * exact);
      CHECK(std::fabs(sine[i] - std::sin(angle)) <= 0x1p-23);
      CHECK(std::fabs(cosine[i] - std::cos(angle)) <= 0x1p-23);
    }
  }
}

}  // namespace

}  // namespace numbers_test
