#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <numeric>

#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

namespace barriers_test {

using namespace emulator::testing;
using namespace hyb::kernels::cuda;

namespace {

struct Partials {
  SharedArray<float, 8> sums;
};

__device__ float warp_sum(float value) {
  for (int bits = 16; bits > 0; bits /= 2) value += shuffle_xor(value, bits);
  return value;
}

/// The sum of 256 numbers per block; without the barrier when it is the planted bug.
template <bool Barrier>
__global__ void sum_kernel(const float* x, float* y) {
  Partials& partials = dynamic_shared<Partials>();
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const float sum = warp_sum(x[blockIdx.x * blockDim.x + threadIdx.x]);
  if (lane == 0) partials.sums[warp] = sum;
  if constexpr (Barrier) sync_block();
  if (warp == 0) {
    const float total = warp_sum(lane < 8 ? partials.sums[lane] : 0.0F);
    if (lane == 0) y[blockIdx.x] = total;
  }
}

template <bool Barrier>
bool sums_are_right(const Schedule& schedule) {
  std::vector<float> x(8 * 256);
  std::iota(x.begin(), x.end(), 1.0F);
  bool right = true;
  const std::string fault = fault_of(schedule, [&] {
    const DeviceArray<float> in(x), out(std::size_t{8});
    launch({.blocks = 8, .threads = 256, .shared_bytes = sizeof(Partials)}, sum_kernel<Barrier>,
           in.data(), out.data());
    const std::vector<float> sums = out.values();
    for (std::size_t i = 0; i < 8; ++i) {
      right = right && sums[i] == std::accumulate(x.begin() + static_cast<long>(i) * 256,
                                                  x.begin() + static_cast<long>(i + 1) * 256, 0.0F);
    }
  });
  CHECK(fault == "");
  return right;
}

/// Rounds in which every warp writes its row and then reads its neighbour's; without the second
/// barrier a warp may write what the neighbour has not read yet.
template <bool SecondBarrier>
__global__ void rotate_kernel(int* y, int rounds) {
  auto& rows = dynamic_shared<SharedArray<int, 128>>();
  const int thread = static_cast<int>(threadIdx.x);
  int value = thread;
  for (int i = 0; i < rounds; ++i) {
    rows[thread] = value;
    sync_block();
    value = rows[(thread + 32) % 128] + 1;
    if constexpr (SecondBarrier) sync_block();
  }
  y[thread] = value;
}

template <bool SecondBarrier>
bool rotates(const Schedule& schedule) {
  bool right = true;
  fault_of(schedule, [&] {
    const DeviceArray<int> out(std::size_t{128});
    launch({.threads = 128, .shared_bytes = 512}, rotate_kernel<SecondBarrier>, out.data(), 6);
    const std::vector<int> values = out.values();
    for (int i = 0; i < 128; ++i) {
      right = right && values[static_cast<std::size_t>(i)] == (i + 6 * 32) % 128 + 6;
    }
  });
  return right;
}

/// A producer warp fills a stage that consumer warps read, with one named barrier each way.
__global__ void produce_kernel(int* y, int rounds, bool waits_for_readers) {
  auto& stage = dynamic_shared<SharedArray<int, 32>>();
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  for (int i = 0; i < rounds; ++i) {
    if (warp == 0) {
      if (i > 0 && waits_for_readers) barrier_sync(2, 96);
      stage[lane] = 1000 * i + lane;
      barrier_arrive(1, 96);
    } else {
      barrier_sync(1, 96);
      y[(i * 2 + warp - 1) * warp_size + lane] = stage[31 - lane];
      if (i + 1 < rounds && waits_for_readers) barrier_arrive(2, 96);
    }
  }
}

__global__ void vote_kernel(int* y) {
  const bool odd = threadIdx.x % 2 == 1;
  y[0] = sync_block_count(odd);
  y[1] = sync_block_any(threadIdx.x == 77) ? 1 : 0;
  y[2] = sync_block_any(false) ? 1 : 0;
}

/// Half of the block never comes to the barrier that the other half waits at.
__global__ void stuck_kernel(int* y) {
  if (threadIdx.x < 64) sync_block();
  if (threadIdx.x >= 64) barrier_sync(3, 128);
  y[0] = 1;
}

__global__ void split_barrier_kernel(int* y) {
  if (threadIdx.x % 2 == 0) {
    sync_block();
  } else {
    sync_block();
  }
  y[0] = 1;
}

__global__ void odd_barrier_kernel() { barrier_sync(4, 33); }
__global__ void unlike_barrier_kernel() { barrier_sync(4, threadIdx.x < 32 ? 64 : 32); }

__global__ void spin_kernel(unsigned* flag) {
  if (threadIdx.x == 0) {
    while (load_acquire(flag) == 0) spin_pause();
  }
}

__global__ void grid_kernel(unsigned* counts, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x == 0) atomic_add(&counts[i], 1U);
    sync_grid();
    if (load_acquire(&counts[i]) != gridDim.x) atomic_add(&counts[rounds], 1U);
  }
}

TEST_SUITE("cuda_emulator/barriers") {
  TEST_CASE("a right kernel gives the same answer in every schedule") {
    for (const Schedule& schedule : schedules()) {
      CAPTURE(name_of(schedule));
      CHECK(sums_are_right<true>(schedule));
      CHECK(rotates<true>(schedule));
    }
  }

  TEST_CASE("a missing barrier before a read shows") {
    CHECK_FALSE(sums_are_right<false>({.order = Order::first_warp_ahead}));
    CHECK_FALSE(sums_are_right<false>({.order = Order::permuted}));
  }

  TEST_CASE("a missing barrier before a stage is written again shows") {
    CHECK_FALSE(rotates<false>({.order = Order::first_warp_ahead}));
    CHECK_FALSE(rotates<false>({.order = Order::last_warp_ahead}));
  }

  TEST_CASE("named barriers hand a stage over, and only a full hand-over is right") {
    constexpr int rounds = 5;
    int wrong = 0;
    for (const Schedule& schedule : schedules()) {
      for (const bool waits : {true, false}) {
        bool right = true;
        const std::string fault = fault_of(schedule, [&] {
          const DeviceArray<int> out(std::size_t{rounds * 64});
          launch({.threads = 96, .shared_bytes = 128}, produce_kernel, out.data(), rounds, waits);
          const std::vector<int> values = out.values();
          for (int i = 0; i < rounds * 64; ++i) {
            right = right && values[static_cast<std::size_t>(i)] == i / 64 * 1000 + 31 - i % 32;
          }
        });
        if (waits) CHECK(fault == "");
        if (waits) CHECK(right);
        if (!waits && (!right || !fault.empty())) ++wrong;
      }
    }
    CHECK(wrong >= 3);
  }

  TEST_CASE("votes at a barrier") {
    for (const Schedule& schedule : schedules()) {
      CHECK(fault_of(schedule, [] {
              const DeviceArray<int> out(std::size_t{3});
              launch({.threads = 96}, vote_kernel, out.data());
              CHECK(out.values() == std::vector<int>{48, 1, 0});
            }) == "");
    }
  }

  TEST_CASE("a deadlock reports what waits where") {
    const std::string text = fault_of({}, [] {
      const DeviceArray<int> out(std::size_t{1});
      launch({.threads = 128}, stuck_kernel, out.data());
    });
    CHECK(contains(text, "deadlock"));
    CHECK(contains(text, "warp 0: 32 lanes from 0 in sync_block at"));
    CHECK(contains(text, "warp 3: 32 lanes from 0 in barrier_sync at"));
    CHECK(contains(text, "barriers_test.cpp:"));
  }

  TEST_CASE("a loop that waits forever is a deadlock too") {
    const std::string text = fault_of({}, [] {
      const DeviceArray<unsigned> flag(std::vector<unsigned>{0});
      launch({.threads = 64}, spin_kernel, flag.data());
      cudaDeviceSynchronize();
    });
    CHECK(contains(text, "deadlock"));
    CHECK(contains(text, "spin_pause"));
  }

  TEST_CASE("misuses are named") {
    const auto fault = [](auto kernel) {
      return fault_of({}, [&] {
        const DeviceArray<int> out(std::size_t{1});
        launch({.threads = 64}, kernel, out.data());
        cudaDeviceSynchronize();
      });
    };
    const auto fault_of_plain = [](void (*kernel)()) {
      return fault_of({}, [&] { launch({.threads = 64}, kernel); });
    };
    CHECK(contains(fault(split_barrier_kernel), "its lanes are at different places"));
    CHECK(contains(fault_of_plain(odd_barrier_kernel), "whole warps only"));
    CHECK(contains(fault_of_plain(unlike_barrier_kernel), "where others came to one of"));
  }

  TEST_CASE("a grid barrier holds back all blocks of a cooperative launch") {
    constexpr int rounds = 7;
    for (const Schedule& schedule : schedules()) {
      CAPTURE(name_of(schedule));
      CHECK(fault_of(schedule, [] {
              const DeviceArray<unsigned> counts(std::vector<unsigned>(rounds + 1, 0));
              launch({.blocks = 6, .threads = 64, .cooperative = true}, grid_kernel, counts.data(),
                     rounds);
              std::vector<unsigned> expected(rounds, 6);
              expected.push_back(0);
              CHECK(counts.values() == expected);
            }) == "");
    }
    CHECK(contains(fault_of({},
                            [] {
                              const DeviceArray<unsigned> counts(std::vector<unsigned>(9, 0));
                              launch({.blocks = 6, .threads = 64}, grid_kernel, counts.data(), 7);
                              cudaDeviceSynchronize();
                            }),
                   "not cooperative"));
  }
}

}  // namespace

}  // namespace barriers_test
