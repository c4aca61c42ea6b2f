#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include "kernels/arena/cuda_arena.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

namespace accesses_test {

using namespace emulator::testing;
using namespace hyb::kernels::cuda;

namespace {

struct Tile {
  SharedArray<float, 64> values;
};

enum class Order : std::uint8_t { none, warp, block, named };

/// Thread i writes a word, then reads its neighbour's: in another warp for the last of a warp.
__global__ void neighbour_kernel(float* y, Order order, int distance) {
  Tile& tile = dynamic_shared<Tile>();
  const int i = static_cast<int>(threadIdx.x);
  tile.values[i] = 1;
  if (order == Order::warp) sync_warp();
  if (order == Order::block) sync_block();
  if (order == Order::named) barrier_sync(3, 64);
  y[i] = tile.values[(i + distance) % 64];
}

std::string fault_of_neighbours(Order order, int distance) {
  return fault_of({}, [&] {
    const DeviceArray<float> y(std::size_t{64});
    launch({.threads = 64, .shared_bytes = sizeof(Tile)}, neighbour_kernel, y.data(), order,
           distance);
    cudaDeviceSynchronize();
  });
}

/// Writes again what others may still read.
__global__ void overwrite_kernel(float* y, bool waits) {
  Tile& tile = dynamic_shared<Tile>();
  const int i = static_cast<int>(threadIdx.x);
  tile.values[i] = 1;
  sync_block();
  y[i] = tile.values[63 - i];
  if (waits) sync_block();
  tile.values[i] = 2;
}

/// One warp hands over to the other, and both ways where it waits for its reader.
__global__ void pass_kernel(float* y, int rounds, bool waits) {
  Tile& tile = dynamic_shared<Tile>();
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x < warp_size) {
      if (i > 0 && waits) barrier_sync(2, 64);
      tile.values[lane] = 1;
      barrier_arrive(1, 64);
    } else {
      barrier_sync(1, 64);
      y[lane] = tile.values[31 - lane];
      if (i + 1 < rounds && waits) barrier_arrive(2, 64);
    }
  }
}

__global__ void count_kernel(unsigned* y, bool is_atomic) {
  auto& count = dynamic_shared<SharedArray<unsigned, 1>>();
  if (threadIdx.x == 0) count[0] = 0;
  sync_block();
  if (is_atomic) atomic_add(&count[0], 1U);
  if (!is_atomic) count[0] += 1;
  sync_block();
  if (threadIdx.x == 0) y[0] = count[0];
}

/// Reads what cp.async brings, before a barrier of all.
__global__ void copied_kernel(const float* x, float* y, bool meets) {
  Tile& tile = dynamic_shared<Tile>();
  const int i = static_cast<int>(threadIdx.x);
  if (i < 16) cp_async16(&tile.values[4 * i], x + 4 * i);
  cp_async_commit();
  cp_async_wait<0>();
  if (meets) sync_block();
  y[i] = tile.values[63 - i];
}

__global__ void read_kernel(const float* x, float* y, long i) { y[0] = x[i]; }
__global__ void cast_kernel(const char* x, std::uint32_t* y, int offset) {
  y[0] = *reinterpret_cast<const std::uint32_t*>(x + offset);
}

/// Reads by load16_once what it, or the kernel before it, has just written.
__global__ void once_kernel(float* x, bool writes, bool reads) {
  if (writes) x[threadIdx.x] = 3;
  wait_for_previous_kernel();
  if (reads) x[threadIdx.x + 64] = static_cast<float>(load16_once(x + threadIdx.x / 4 * 4).x);
}

enum class Release : std::uint8_t { none, before_barrier, after_barrier };

/// Every block leaves a number; the last one to come adds all of them up.
__global__ void last_block_kernel(float* parts, unsigned* semaphore, float* sum, Release release) {
  auto& is_last = dynamic_shared<SharedArray<bool, 1>>();
  if (threadIdx.x == 33) parts[blockIdx.x] = 1;
  if (release == Release::before_barrier && threadIdx.x == 0) fence();
  sync_block();
  if (threadIdx.x == 0) {
    if (release == Release::after_barrier) fence();
    is_last[0] = atomic_add(semaphore, 1U) + 1 == gridDim.x;
  }
  sync_block();
  if (!is_last[0] || threadIdx.x != 0) return;
  fence();
  float all = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) all += parts[i];
  sum[0] = all;
}

float sum_of_parts(const Schedule& schedule, Release release) {
  float sum = 0;
  CHECK(fault_of(schedule, [&] {
          const DeviceArray<float> parts(std::vector<float>(8, 0)), y(std::size_t{1});
          const DeviceArray<unsigned> semaphore(std::vector<unsigned>{0});
          launch({.blocks = 8, .threads = 64, .shared_bytes = 16}, last_block_kernel, parts.data(),
                 semaphore.data(), y.data(), release);
          sum = y.values()[0];
        }) == "");
  return sum;
}

/// Lane i reads the word at i times the stride.
__global__ void stride_kernel(float* y, int stride) {
  auto& words = dynamic_shared<SharedArray<float, 1024>>();
  for (int i = static_cast<int>(threadIdx.x); i < 1024; i += warp_size) words[i] = 1;
  sync_block();
  y[threadIdx.x] = words[static_cast<int>(threadIdx.x) * stride];
}

emulator::BankCounts banks_of_stride(int stride) {
  emulator::count_banks(true);
  CHECK(fault_of({}, [&] {
          const DeviceArray<float> y(std::size_t{32});
          launch({.shared_bytes = 4096}, stride_kernel, y.data(), stride);
          cudaDeviceSynchronize();
        }) == "");
  emulator::count_banks(false);
  return emulator::take_bank_counts("accesses_test::stride_kernel");
}

TEST_SUITE("cuda_emulator/checked") {
  TEST_CASE("a race in shared memory is named with both places") {
    const std::string fault = fault_of_neighbours(Order::none, 1);
    CHECK(contains(fault, "a race in shared memory: a write after a read of thread"));
    CHECK(contains(fault, "accesses_test.cpp:"));
    CHECK(contains(fault, "in block (0,0,0) thread"));
    CHECK(contains(fault, "of accesses_test::neighbour_kernel"));
  }

  TEST_CASE("barriers order accesses, and sync_warp within a warp") {
    CHECK(fault_of_neighbours(Order::none, 0) == "");
    CHECK(fault_of_neighbours(Order::block, 1) == "");
    CHECK(fault_of_neighbours(Order::named, 1) == "");
    CHECK(contains(fault_of_neighbours(Order::warp, 1), "a race"));  // 31 reads from 32
    CHECK(contains(fault_of_neighbours(Order::warp, 32), "a race"));
  }

  TEST_CASE("what others may still read is not written") {
    for (const bool waits : {true, false}) {
      const std::string fault = fault_of({}, [&] {
        const DeviceArray<float> y(std::size_t{64});
        launch({.threads = 64, .shared_bytes = sizeof(Tile)}, overwrite_kernel, y.data(), waits);
        cudaDeviceSynchronize();
      });
      CHECK(contains(fault, "a race in shared memory") == !waits);
      CHECK(fault.empty() == waits);
    }
  }

  TEST_CASE("named barriers that arrive and wait order one side at a time") {
    for (const Schedule& schedule : schedules()) {
      for (const bool waits : {true, false}) {
        CAPTURE(name_of(schedule));
        const std::string fault = fault_of(schedule, [&] {
          const DeviceArray<float> y(std::size_t{64});
          launch({.threads = 64, .shared_bytes = sizeof(Tile)}, pass_kernel, y.data(), 5, waits);
          cudaDeviceSynchronize();
        });
        if (waits) CHECK(fault == "");
        if (!waits) CHECK(fault != "");
      }
    }
  }

  TEST_CASE("atomics do not race with each other") {
    for (const bool is_atomic : {true, false}) {
      const std::string fault = fault_of({}, [&] {
        const DeviceArray<unsigned> y(std::size_t{1});
        launch({.threads = 64, .shared_bytes = 16}, count_kernel, y.data(), is_atomic);
        cudaDeviceSynchronize();
      });
      CHECK(fault.empty() == is_atomic);
    }
  }

  TEST_CASE("a copy that one thread waited for is its own until a barrier") {
    for (const bool meets : {true, false}) {
      const std::string fault = fault_of({}, [&] {
        const DeviceArray<float> x(std::vector<float>(64, 1)), y(std::size_t{64});
        launch({.threads = 64, .shared_bytes = sizeof(Tile)}, copied_kernel, x.data(), y.data(),
               meets);
        cudaDeviceSynchronize();
      });
      CHECK(contains(fault, "a race") == !meets);
      CHECK(fault.empty() == meets);
    }
  }

  TEST_CASE("plain loads keep to an allocation to the byte, and to their alignment") {
    const DeviceArray<float> x(std::vector<float>(3, 1)), y(std::size_t{1});
    const auto fault_at = [&](long i) {
      return fault_of({}, [&] {
        launch({.threads = 1}, read_kernel, x.data(), y.data(), i);
        cudaDeviceSynchronize();
      });
    };
    CHECK(fault_at(2) == "");
    CHECK(contains(fault_at(3), "a read of 4 bytes that are not inside of an allocation"));
    CHECK(contains(fault_at(-1), "not inside of an allocation"));

    const DeviceArray<char> bytes(std::vector<char>(16, 1));
    const DeviceArray<std::uint32_t> word(std::size_t{1});
    const auto fault_of_cast = [&](int offset) {
      return fault_of({}, [&] {
        launch({.threads = 1}, cast_kernel, bytes.data(), word.data(), offset);
        cudaDeviceSynchronize();
      });
    };
    CHECK(fault_of_cast(4) == "");
    CHECK(contains(fault_of_cast(6), "a read of 4 bytes: misaligned"));
  }

  TEST_CASE("plain loads keep to the mappings that their card was given access to") {
    using hyb::kernels::CudaArena, hyb::kernels::HandleId;
    constexpr std::size_t bytes = 4096;
    const Cards cards(2);
    for (const bool is_shared : {true, false}) {
      CudaArena arena(driver(), 0, bytes, is_shared ? std::vector<int>{1} : std::vector<int>{});
      const HandleId handle = arena.create();
      std::byte* const at = arena.reserve(bytes);
      arena.map(at, {&handle, 1});
      const auto fault_on = [&](int card) {
        const OnCard on(card);
        const DeviceArray<float> y(std::size_t{1});
        return fault_of({}, [&] {
          launch({.threads = 1}, read_kernel, reinterpret_cast<const float*>(at), y.data(), 3L);
        });
      };
      CHECK(fault_on(0) == "");
      const std::string fault = fault_on(1);
      CHECK(fault.empty() == is_shared);
      if (!is_shared) CHECK(contains(fault, "a read of 4 bytes of card 0, which card 1 may not"));
      arena.unmap(at, {&handle, 1});
      arena.release(handle);
      arena.unreserve(at, bytes);
    }
  }

  TEST_CASE("load16_once of what a kernel in flight writes") {
    const auto fault = [](bool same_kernel, bool starts_early) {
      return fault_of({}, [&] {
        const DeviceArray<float> x(std::vector<float>(128, 1));
        const Shape shape{.threads = 64, .starts_early = starts_early};
        launch(shape, once_kernel, x.data(), true, same_kernel);
        launch(shape, once_kernel, x.data(), false, true);
        cudaDeviceSynchronize();
      });
    };
    CHECK(fault(false, false) == "");
    CHECK(fault(false, true) == "");  // it waits for the kernel before it
    CHECK(contains(fault(true, false), "by load16_once") ==
          !contains(fault(true, false), "load16_once of bytes that a kernel in flight writes"));
    CHECK(contains(fault(true, false), "load16_once"));
  }

  TEST_CASE("a store without a fence is not seen by other blocks") {
    for (const Schedule& schedule : schedules()) {
      CAPTURE(name_of(schedule));
      CHECK(sum_of_parts(schedule, Release::after_barrier) == 8);
      CHECK(sum_of_parts(schedule, Release::none) < 8);
      CHECK(sum_of_parts(schedule, Release::before_barrier) < 8);  // of thread 0's stores alone
    }
  }

  TEST_CASE("bank conflicts are counted per kernel") {
    // 32 writes of whole rows, then the read: one access of as many cycles as lanes share a bank.
    const auto cycles = [](int stride) {
      const emulator::BankCounts banks = banks_of_stride(stride);
      CHECK(banks.accesses == 33);
      return banks.cycles - 32;
    };
    CHECK(cycles(1) == 1);
    CHECK(cycles(0) == 1);
    CHECK(cycles(2) == 2);
    CHECK(cycles(31) == 1);
    CHECK(cycles(16) == 16);
  }
}

}  // namespace

}  // namespace accesses_test
