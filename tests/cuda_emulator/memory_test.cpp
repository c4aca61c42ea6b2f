#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

namespace cuda_emulator_memory_test {

using namespace emulator::testing;
using namespace hyb::kernels::cuda;

namespace {

struct Rows {
  SharedArray<SharedArray<float, 4>, 8> row;
};

__global__ void index_kernel(float* y, int row, int column) {
  Rows& rows = dynamic_shared<Rows>();
  rows.row[row][column] = 1;
  y[0] = 1;
}

/// Writes element i of 32 floats through a plain pointer, which nothing checks but the pages.
__global__ void plain_write_kernel(int i) { (&dynamic_shared<float>())[i] = 1; }
__global__ void plain_read_kernel(float* y, int i) { y[0] = (&dynamic_shared<float>())[i]; }

__global__ void object_kernel(float* y, int i) {
  struct Small {
    float values[4];
  };
  Small& object = shared_object<Small>();
  object.values[threadIdx.x % 4] = static_cast<float>(threadIdx.x % 4);
  (&object.values[0])[i] = 3;
  sync_block();
  y[threadIdx.x] = shared_object<Small>().values[(threadIdx.x + 1) % 4];
}

__global__ void vector_kernel(const float* x, float* y, int offset) {
  store16(y, load16(x + offset));
}
__global__ void vector_store_kernel(float* y, int offset) { store8(y + offset, {1, 2}); }

__global__ void global_write_kernel(float* y, long i) { y[i] = 1; }
__global__ void prefetch_kernel(const float* x, long i) { prefetch(x + i); }
__global__ void recurse_kernel(int* y, int depth) {
  struct Frames {
    static __device__ int deeper(int left) {
      volatile char bytes[4096];
      bytes[left % 4096] = static_cast<char>(left);
      return left == 0 ? 0 : deeper(left - 1) + bytes[left % 4096];
    }
  };
  y[0] = Frames::deeper(depth);
}

template <typename Kernel, typename... Arguments>
std::string fault_with(std::size_t shared_bytes, Kernel kernel, Arguments... arguments) {
  return fault_of({}, [&] {
    launch({.threads = 1, .shared_bytes = shared_bytes}, kernel, arguments...);
    cudaDeviceSynchronize();
  });
}

TEST_SUITE("cuda_emulator/memory") {
  TEST_CASE("shared memory outside of its bounds") {
    const DeviceArray<float> y(std::size_t{64});
    CHECK(fault_with(sizeof(Rows), index_kernel, y.data(), 7, 3) == "");
    CHECK(contains(fault_with(sizeof(Rows), index_kernel, y.data(), 7, 4),
                   "index 4 of a shared array of 4"));
    CHECK(contains(fault_with(sizeof(Rows), index_kernel, y.data(), -1, 0), "index -1"));
    CHECK(contains(fault_with(64, index_kernel, y.data(), 0, 0), "the launch gave 64"));

    CHECK(fault_with(128, plain_write_kernel, 31) == "");
    CHECK(contains(fault_with(128, plain_write_kernel, 32), "outside of shared memory"));
    CHECK(contains(fault_with(128, plain_read_kernel, y.data(), 32), "outside of shared memory"));
    CHECK(contains(fault_with(124, plain_write_kernel, 31), "past the 124 bytes"));
    CHECK(contains(fault_with(128, plain_write_kernel, -1), "before the dynamic shared memory"));
    CHECK(contains(fault_with(0, object_kernel, y.data(), 4), "outside of a shared object of 16"));
  }

  TEST_CASE("static and dynamic shared memory together keep to 48 KB, or to what was set") {
    const DeviceArray<float> y(std::size_t{4});
    constexpr std::size_t most = 48 << 10, object = 16;
    CHECK(fault_with(most - object, object_kernel, y.data(), 0) == "");
    CHECK(contains(fault_with(most - object + 16, object_kernel, y.data(), 0),
                   "no shared memory is left"));
    CHECK(cudaFuncSetAttribute(object_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(most)) == cudaSuccess);
    CHECK(fault_with(most, object_kernel, y.data(), 0) == "");
  }

  TEST_CASE("a shared object is one for all that name its type") {
    for (const Schedule& schedule : schedules()) {
      CHECK(fault_of(schedule, [] {
              const DeviceArray<float> y(std::size_t{64});
              launch({.threads = 64}, object_kernel, y.data(), 3);
              const std::vector<float> values = y.values();
              for (std::size_t i = 0; i < 64; ++i) {
                CHECK(values[i] == static_cast<float>((i + 1) % 4));
              }
            }) == "");
    }
  }

  TEST_CASE("shared memory starts as NaN, also where a block before it has written") {
    CHECK(fault_of({}, [] {
            const DeviceArray<float> y(std::size_t{1});
            launch({.threads = 1, .shared_bytes = 128}, plain_write_kernel, 5);
            launch({.threads = 1, .shared_bytes = 128}, plain_read_kernel, y.data(), 5);
            CHECK(std::isnan(y.values()[0]));
          }) == "");
  }

  TEST_CASE("misaligned vectors") {
    const DeviceArray<float> x(std::vector<float>(16, 2.0F)), y(std::size_t{16});
    CHECK(fault_with(0, vector_kernel, x.data(), y.data(), 4) == "");
    CHECK(contains(fault_with(0, vector_kernel, x.data(), y.data(), 1),
                   "a vector load: misaligned, the address is no multiple of 16"));
    CHECK(contains(fault_with(0, vector_store_kernel, y.data(), 1), "no multiple of 8"));
  }

  TEST_CASE("a prefetch outside of an allocation") {
    const DeviceArray<float> x(std::size_t{4});
    CHECK(fault_with(0, prefetch_kernel, x.data(), 3L) == "");
    CHECK(contains(fault_with(0, prefetch_kernel, x.data(), 1L << 40), "inside of an allocation"));
  }

  TEST_CASE("global memory outside of its allocation") {
    const DeviceArray<float> y(std::size_t{100});
    CHECK(fault_with(0, global_write_kernel, y.data(), 99L) == "");
    CHECK(contains(fault_with(0, global_write_kernel, y.data(), 100L),
                   "past the end of a device allocation of 400 bytes"));
    CHECK(contains(fault_with(0, global_write_kernel, y.data(), 128L),
                   "outside of an allocation of the device"));
    CHECK(
        contains(fault_with(0, global_write_kernel, y.data(), -1000L), "outside of an allocation"));
    CHECK(contains(fault_with(0, global_write_kernel, reinterpret_cast<float*>(0x10000), 0L),
                   "not the device's"));
  }

  TEST_CASE("a fault of one launch ends all work until it is reset") {
    const DeviceArray<float> y(std::vector<float>{7});
    reset();
    launch({.threads = 1, .shared_bytes = 124}, plain_write_kernel, 32);
    launch({.threads = 1}, global_write_kernel, y.data(), 0L);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(contains(cudaGetErrorString(cudaErrorLaunchFailure), "outside of shared memory"));
    CHECK(contains(cudaGetErrorString(cudaErrorLaunchFailure), "in block (0,0,0) thread (0,0,0)"));
    reset();
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(y.values()[0] == 7.0F);
  }

  TEST_CASE("a stack that overflows") {
    const DeviceArray<int> y(std::size_t{1});
    CHECK(fault_with(0, recurse_kernel, y.data(), 2) == "");
    CHECK(contains(fault_with(0, recurse_kernel, y.data(), 1000), "its stack has overflowed"));
    CHECK(fault_with(0, recurse_kernel, y.data(), 2) == "");
  }

  TEST_CASE("allocations are counted, aligned, and refused when there is no room") {
    void* at = nullptr;
    CHECK(cudaMalloc(&at, std::size_t{1} << 40) == cudaErrorMemoryAllocation);
    CHECK(at == nullptr);
    std::size_t before = 0, after = 0, total = 0;
    cudaMemGetInfo(&before, &total);
    CHECK(cudaMalloc(&at, 1000) == cudaSuccess);
    CHECK(reinterpret_cast<std::uintptr_t>(at) % 256 == 0);
    cudaMemGetInfo(&after, &total);
    CHECK(before - after == 1000);
    CHECK(cudaFree(static_cast<char*>(at) + 256) == cudaErrorInvalidDevicePointer);
    CHECK(cudaFree(at) == cudaSuccess);
    reset();
  }
}

}  // namespace

}  // namespace cuda_emulator_memory_test
