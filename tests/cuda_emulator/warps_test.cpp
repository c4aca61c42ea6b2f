#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

namespace warps_test {

using namespace emulator::testing;
using namespace hyb::kernels::cuda;

namespace {

constexpr int rows = 10;

__global__ void collectives_kernel(int* y) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  int* const row = y + threadIdx.x * rows;
  row[0] = shuffle(lane * 10, 5);
  row[1] = shuffle(lane * 10, 3, full_warp, 8);
  row[2] = shuffle_xor(lane, 9);
  row[3] = shuffle_xor(lane, 16, full_warp, 16);
  row[4] = shuffle_up(lane, 3);
  row[5] = static_cast<int>(ballot(lane % 3 == 0));
  row[6] = any_lane(lane == 40) ? 1 : 0;
  row[7] = static_cast<int>(match_any(static_cast<unsigned>(lane) % 4));
  row[8] = static_cast<int>(reduce_add(static_cast<unsigned>(lane)));
  row[9] = static_cast<int>(reduce_max(static_cast<unsigned>(lane) * 3) -
                            reduce_min(static_cast<unsigned>(lane) + 7));
}

std::vector<int> expected_row(int lane) {
  const auto segment_up = [&](int other, int width) {
    return other / width == lane / width && other >= 0 ? other : lane;
  };
  return {50,
          (lane / 8 * 8 + 3) * 10,
          lane ^ 9,
          (lane ^ 16) / 16 > lane / 16 ? lane : lane ^ 16,
          segment_up(lane - 3, 32),
          0x49249249,
          0,
          0x11111111 << (lane % 4),
          496,
          93 - 7};
}

/// Half warps that work on their own, and lanes that left before.
__global__ void live_kernel(int* y) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane >= 24) return;
  const unsigned half = lane < 16 ? 0xffffU : 0xff0000U;
  int sum = lane;
  for (int i = 0; i < (lane < 16 ? 3 : 2); ++i) sum = shuffle(sum, lane < 16 ? 15 : 16, half) + 1;
  y[lane] = sum + static_cast<int>(ballot(true, half));
}

__global__ void whole_mask_kernel(int* y) {
  if (threadIdx.x >= 24) return;
  y[threadIdx.x] = shuffle(1, 0);
}

__global__ void leaves_kernel(int* y) {
  if (threadIdx.x == 31) {
    spin_pause();
    return;
  }
  y[threadIdx.x] = shuffle(1, 0);
}

__global__ void unlike_kernel(int* y) {
  if (threadIdx.x < 16) {
    y[threadIdx.x] = shuffle(1, 0);
  } else {
    y[threadIdx.x] = static_cast<int>(ballot(true));
  }
}

__global__ void outside_kernel(int* y) {
  y[threadIdx.x] = threadIdx.x == 7 ? shuffle(1, 0, 0xfU) : 0;
}

/// One lane writes, all read: without the warp's barrier some read before.
template <bool Barrier>
__global__ void broadcast_kernel(int* y) {
  auto& value = dynamic_shared<SharedArray<int, 1>>();
  if (threadIdx.x == 13) value[0] = 42;
  if constexpr (Barrier) sync_warp();
  y[threadIdx.x] = value[0];
}

__global__ void count_kernel(unsigned* counts) {
  atomic_add(&counts[0], 1U);
  atomic_or(&counts[1], 1U << blockIdx.x);
}

/// The last block to come sums what all have written.
__global__ void ticket_kernel(unsigned* semaphore, int* partial, int* y) {
  auto& is_last = dynamic_shared<SharedArray<int, 1>>();
  partial[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<int>(blockIdx.x);
  fence();
  sync_block();
  if (threadIdx.x == 0) is_last[0] = atomic_add(semaphore, 1U) + 1 == gridDim.x ? 1 : 0;
  sync_block();
  if (is_last[0] == 0) return;
  int sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += partial[i * blockDim.x + threadIdx.x];
  y[threadIdx.x] = sum;
}

std::string fault_with(void (*kernel)(int*), Order order = Order::first_warp_ahead) {
  return fault_of({.order = order}, [&] {
    const DeviceArray<int> y(std::size_t{32});
    launch({}, kernel, y.data());
    cudaDeviceSynchronize();
  });
}

TEST_SUITE("cuda_emulator/warps") {
  TEST_CASE("every collective gives what the programming guide says") {
    for (const Schedule& schedule : schedules()) {
      CAPTURE(name_of(schedule));
      CHECK(fault_of(schedule, [] {
              const DeviceArray<int> y(std::size_t{64 * rows});
              launch({.threads = 64}, collectives_kernel, y.data());
              const std::vector<int> values = y.values();
              for (int i = 0; i < 64; ++i) {
                CAPTURE(i);
                const auto row = values.begin() + i * rows;
                CHECK(std::vector<int>(row, row + rows) == expected_row(i % 32));
              }
            }) == "");
    }
  }

  TEST_CASE("parts of a warp work on their own") {
    for (const Schedule& schedule : schedules()) {
      CAPTURE(name_of(schedule));
      CHECK(fault_of(schedule, [] {
              const DeviceArray<int> y(std::size_t{24});
              launch({}, live_kernel, y.data());
              const std::vector<int> values = y.values();
              for (std::size_t i = 0; i < 24; ++i) {
                CHECK(values[i] == (i < 16 ? 15 + 3 + 0xffff : 16 + 2 + 0xff0000));
              }
            }) == "");
    }
  }

  TEST_CASE("lanes that are missing or do something else are named") {
    CHECK(contains(fault_with(whole_mask_kernel),
                   "lane 24 has left the kernel while lane 0 waits for it in shuffle"));
    CHECK(contains(fault_with(whole_mask_kernel, Order::last_warp_ahead),
                   "the mask names lane 24, which has left the kernel"));
    CHECK(contains(fault_with(leaves_kernel),
                   "lane 31 has left the kernel while lane 0 waits for it in shuffle"));
    CHECK(contains(fault_with(unlike_kernel), "the lanes of a mask do not do the same"));
    CHECK(contains(fault_with(outside_kernel), "the mask does not name lane 7, which calls it"));
  }

  TEST_CASE("a missing barrier of a warp shows") {
    const auto is_right = [](const Schedule& schedule, void (*kernel)(int*)) {
      bool right = true;
      fault_of(schedule, [&] {
        const DeviceArray<int> y(std::size_t{32});
        launch({.shared_bytes = 4}, kernel, y.data());
        right = y.values() == std::vector<int>(32, 42);
      });
      return right;
    };
    for (const Schedule& schedule : schedules()) CHECK(is_right(schedule, broadcast_kernel<true>));
    CHECK_FALSE(is_right({.order = Order::first_warp_ahead}, broadcast_kernel<false>));
    CHECK_FALSE(is_right({.order = Order::last_warp_ahead}, broadcast_kernel<false>));
  }

  TEST_CASE("atomics count what all blocks on all cores do") {
    for (const Schedule& schedule : schedules()) {
      CHECK(fault_of(schedule, [] {
              const DeviceArray<unsigned> counts(std::vector<unsigned>{0, 0});
              launch({.blocks = 5, .threads = 256}, count_kernel, counts.data());
              const std::vector<unsigned> values = counts.values();
              CHECK(values[0] == 5 * 256);
              CHECK(values[1] == 31);
            }) == "");
    }
  }

  TEST_CASE("the block that draws the last semaphore sees what all wrote") {
    for (const Schedule& schedule : schedules()) {
      CHECK(fault_of(schedule, [] {
              const DeviceArray<unsigned> semaphore(std::vector<unsigned>{0});
              const DeviceArray<int> partial(std::size_t{20 * 64}), y(std::size_t{64});
              launch({.blocks = 20, .threads = 64, .shared_bytes = 4}, ticket_kernel,
                     semaphore.data(), partial.data(), y.data());
              CHECK(y.values() == std::vector<int>(64, 190));
            }) == "");
    }
  }
}

}  // namespace

}  // namespace warps_test
