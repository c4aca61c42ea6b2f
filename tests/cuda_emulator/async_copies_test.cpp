#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

namespace async_copies_test {

using namespace emulator::testing;
using namespace hyb::kernels::cuda;

namespace {

enum class Bug { none, no_wait, wait_after_barrier, no_barrier_at_end };

struct Stages {
  float values[2][128];
};

/// Sums the rows of x [rows,128] through two stages, each thread for itself a column that another
/// warp has copied.
template <Bug B>
__global__ void sum_rows_kernel(const float* x, float* y, int rows) {
  Stages& stages = dynamic_shared<Stages>();
  const int thread = static_cast<int>(threadIdx.x);
  const auto copy_row = [&](int row) {
    if (thread < 32) {
      cp_async16(&stages.values[row % 2][thread * 4], x + row * 128 + thread * 4, row < rows);
    }
    cp_async_commit();
  };
  float sum = 0;
  copy_row(0);
  for (int row = 0; row < rows; ++row) {
    copy_row(row + 1);
    if constexpr (B == Bug::none || B == Bug::no_barrier_at_end) cp_async_wait<1>();
    if constexpr (B == Bug::no_wait) cp_async_wait<2>();
    sync_block();
    if constexpr (B == Bug::wait_after_barrier) cp_async_wait<1>();
    sum += stages.values[row % 2][(thread + 64) % 128];
    if constexpr (B != Bug::no_barrier_at_end) sync_block();
  }
  y[thread] = sum;
}

constexpr int rows = 9;

template <Bug B>
bool sums_are_right(const Schedule& schedule) {
  std::vector<float> x(rows * 128);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 101);
  bool right = true;
  const std::string fault = fault_of(schedule, [&] {
    const DeviceArray<float> in(x), out(std::size_t{128});
    launch({.threads = 128, .shared_bytes = sizeof(Stages)}, sum_rows_kernel<B>, in.data(),
           out.data(), rows);
    const std::vector<float> sums = out.values();
    for (std::size_t i = 0; i < 128; ++i) {
      float sum = 0;
      for (std::size_t row = 0; row < rows; ++row) sum += x[row * 128 + (i + 64) % 128];
      right = right && sums[i] == sum;
    }
  });
  CHECK(fault == "");
  return right;
}

__global__ void misplaced_kernel(const float* x, int to_offset, int from_offset, bool is_there) {
  auto& stage = dynamic_shared<SharedArray<float, 32>>();
  cp_async16(reinterpret_cast<char*>(&stage[0]) + to_offset,
             reinterpret_cast<const char*>(x) + from_offset, is_there);
  cp_async_wait<0>();
}

std::string fault_of_copy(int to_offset, int from_offset, bool is_there = true) {
  return fault_of({}, [=] {
    const DeviceArray<float> x(std::vector<float>(32, 1.0F));
    launch({.threads = 1, .shared_bytes = 128}, misplaced_kernel, x.data(), to_offset, from_offset,
           is_there);
    cudaDeviceSynchronize();
  });
}

__global__ void zero_fill_kernel(const float* x, float* y) {
  auto& stage = dynamic_shared<SharedArray<float, 8>>();
  cp_async16(&stage[0], x, true);
  cp_async16(&stage[4], nullptr, false);
  cp_async_commit();
  cp_async<8>(&stage[2], x, false);
  cp_async<4>(&stage[5], x + 3);
  cp_async_commit();
  cp_async_wait<1>();
  y[8] = stage[2];
  cp_async_wait<0>();
  for (int i = 0; i < 8; ++i) y[i] = stage[i];
}

TEST_SUITE("cuda_emulator/async_copies") {
  TEST_CASE("two stages, right in every schedule") {
    for (const Schedule& schedule : schedules()) {
      CAPTURE(name_of(schedule));
      CHECK(sums_are_right<Bug::none>(schedule));
    }
  }

  TEST_CASE("a missing wait shows in every schedule") {
    for (const Schedule& schedule : schedules()) {
      CAPTURE(name_of(schedule));
      CHECK_FALSE(sums_are_right<Bug::no_wait>(schedule));
    }
  }

  TEST_CASE("a wait after the barrier instead of before it shows") {
    CHECK_FALSE(sums_are_right<Bug::wait_after_barrier>({.order = Order::last_warp_ahead}));
    CHECK_FALSE(sums_are_right<Bug::wait_after_barrier>({.order = Order::permuted}));
  }

  TEST_CASE("a stage that is filled again before all have read it shows") {
    CHECK_FALSE(sums_are_right<Bug::no_barrier_at_end>({.order = Order::first_warp_ahead}));
  }

  TEST_CASE("missing sources are zeros, and a group that is waited for early stays poisoned") {
    CHECK(fault_of({}, [] {
            const DeviceArray<float> in(std::vector<float>{1, 2, 3, 4}), out(std::size_t{9});
            launch({.threads = 1, .shared_bytes = 32}, zero_fill_kernel, in.data(), out.data());
            const std::vector<float> y = out.values();
            CHECK(std::vector<float>(y.begin(), y.begin() + 8) ==
                  std::vector<float>{1, 2, 0, 0, 0, 4, 0, 0});
            CHECK(y[8] == 3.0F);
          }) == "");
  }

  TEST_CASE("misplaced copies are named") {
    CHECK(fault_of_copy(0, 0) == "");
    CHECK(contains(fault_of_copy(8, 0), "cp_async to: misaligned"));
    CHECK(contains(fault_of_copy(0, 4), "cp_async from: misaligned"));
    CHECK(contains(fault_of_copy(128, 0), "cp_async to: 16 bytes that are not shared memory"));
    CHECK(contains(fault_of_copy(0, 128), "not inside of an allocation of the device"));
    CHECK(fault_of_copy(0, 128, false) == "");
  }
}

}  // namespace

}  // namespace async_copies_test
