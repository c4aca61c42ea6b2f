#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>

#include "kernels/cuda/ptx.h"
#include "kernels/floats.h"
#include "tests/cuda_emulator/device/inexact.h"
#include "tests/cuda_emulator/support.h"

namespace matrix_test {

using namespace emulator::testing;
using namespace hyb::kernels::cuda;
using hyb::kernels::to_bf16;
using hyb::kernels::to_float;

namespace {

using Half = std::uint16_t;

struct Tiles {
  alignas(16) Half a[16][24];  // rows padded, as kernels do
  alignas(16) Half b[8][24];   // b transposed: row n holds column n
};

/// One product of 16x16 by 16x8; the fragments come by ldmatrix from padded rows.
__global__ void product_kernel(const Half* a, const Half* b, const float* c, float* d) {
  Tiles& tiles = dynamic_shared<Tiles>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += warp_size) tiles.a[i / 16][i % 16] = a[i];
  for (int i = lane; i < 128; i += warp_size) tiles.b[i % 8][i / 8] = b[i];
  sync_warp();
  std::uint32_t fragment_a[4], fragment_b[4];  // of b the first two
  ldmatrix_x4(fragment_a, &tiles.a[lane % 16][lane / 16 * 8]);
  ldmatrix_x4(fragment_b, &tiles.b[lane % 8][lane / 8 % 2 * 8]);
  float sums[4];
  const auto at = [&](int i) { return (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2; };
  for (int i = 0; i < 4; ++i) sums[i] = c[at(i)];
  mma_bf16(sums, fragment_a, fragment_b[0], fragment_b[1]);
  for (int i = 0; i < 4; ++i) d[at(i)] = sums[i];
}

__global__ void transposed_kernel(std::uint32_t* y) {
  auto& tile = dynamic_shared<SharedArray<SharedArray<Half, 8>, 32>>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 8; ++i) tile[lane][i] = static_cast<Half>(lane * 8 + i);
  sync_warp();
  std::uint32_t matrices[4];
  ldmatrix_x4_transposed(matrices, &tile[lane][0]);
  for (int i = 0; i < 4; ++i) y[lane * 4 + i] = matrices[i];
}

__global__ void misaligned_kernel(std::uint32_t* y) {
  auto& tile = dynamic_shared<SharedArray<Half, 512>>();
  std::uint32_t four[4];
  ldmatrix_x4(four, &tile[static_cast<int>(threadIdx.x) * 12]);
  y[0] = four[0];
}

/// Every second lane runs the product, which a whole warp has to.
__global__ void half_warp_kernel(float* y) {
  const std::uint32_t a[4] = {0, 0, 0, 0};
  float sums[4] = {0, 0, 0, 0};
  if (threadIdx.x % 2 == 0) mma_bf16(sums, a, 0, 0);
  y[threadIdx.x] = sums[0];
}

void check_product() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto draw = [&] { return to_bf16(normal(random)).bits; };
  const auto decode = [](Half bits) -> double { return to_float(hyb::kernels::bf16{bits}); };
  std::vector<Half> a(256), b(128);
  std::vector<float> c(128);
  for (Half& value : a) value = draw();
  for (Half& value : b) value = draw();
  for (float& value : c) value = normal(random);
  const DeviceArray<Half> in_a(a), in_b(b);
  const DeviceArray<float> in_c(c), out(std::size_t{128});
  launch({.shared_bytes = sizeof(Tiles)}, product_kernel, in_a.data(), in_b.data(), in_c.data(),
         out.data());
  const std::vector<float> d = out.values();
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      double sum = c[row * 8 + column], size = std::fabs(sum);
      for (std::size_t k = 0; k < 16; ++k) {
        const double product = decode(a[row * 16 + k]) * decode(b[k * 8 + column]);
        sum += product;
        size += std::fabs(product);
      }
      CHECK(std::fabs(d[row * 8 + column] - sum) <= 17 * 0x1p-24 * size);
    }
  }
}

TEST_SUITE("cuda_emulator/matrix") {
  TEST_CASE("products of bf16 are the definition's, in every schedule") {
    for (const Schedule& schedule : schedules()) {
      CAPTURE(name_of(schedule));
      CHECK(fault_of(schedule, check_product) == "");
    }
  }

  TEST_CASE("truncated sums differ, and are within what eight cut summands and a result lose") {
    const auto sums = [](bool is_inexact) {
      emulator::is_inexact = is_inexact;
      std::vector<Half> a(256, to_bf16(1.0F + 0x1p-7F).bits), b(128, to_bf16(-1.0F / 3).bits);
      const DeviceArray<Half> in_a(a), in_b(b);
      const DeviceArray<float> in_c(std::vector<float>(128, 1000.1F)), out(std::size_t{128});
      launch({.shared_bytes = sizeof(Tiles)}, product_kernel, in_a.data(), in_b.data(), in_c.data(),
             out.data());
      const std::vector<float> values = out.values();
      emulator::is_inexact = false;
      return values;
    };
    const float exact = sums(false)[0], truncated = sums(true)[0];
    CHECK(exact != truncated);
    CHECK(std::fabs(exact - truncated) <= 2 * 9 * 0x1p-23F * 1024);
  }

  TEST_CASE("transposed matrices") {
    CHECK(fault_of({}, [] {
            const DeviceArray<std::uint32_t> out(std::size_t{32 * 4});
            launch({.shared_bytes = 512}, transposed_kernel, out.data());
            const std::vector<std::uint32_t> y = out.values();
            for (std::uint32_t lane = 0; lane < 32; ++lane) {
              for (std::uint32_t i = 0; i < 4; ++i) {
                const std::uint32_t first = i * 64 + lane % 4 * 16 + lane / 4;
                CHECK(y[lane * 4 + i] == (first | (first + 8) << 16));
              }
            }
          }) == "");
  }

  TEST_CASE("rows that are misaligned and lanes that stay away are named") {
    CHECK(contains(fault_of({},
                            [] {
                              const DeviceArray<std::uint32_t> y(std::size_t{1});
                              launch({.shared_bytes = 1024}, misaligned_kernel, y.data());
                              cudaDeviceSynchronize();
                            }),
                   "ldmatrix: misaligned"));
    CHECK(contains(fault_of({},
                            [] {
                              const DeviceArray<float> y(std::size_t{32});
                              launch({}, half_warp_kernel, y.data());
                              cudaDeviceSynchronize();
                            }),
                   "mma_bf16"));
  }
}

}  // namespace

}  // namespace matrix_test
