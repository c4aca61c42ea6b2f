#include "tests/cuda_emulator/driver.h"

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <array>

#include "kernels/arena/cuda_arena.h"
#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

namespace driver_test {

using namespace emulator::testing;
using namespace hyb::kernels::cuda;
using hyb::kernels::CudaArena;
using hyb::kernels::HandleId;
using hyb::kernels::testing::FakeDriver;

namespace {

constexpr std::size_t handle_bytes = 65536;
constexpr std::size_t handle_floats = handle_bytes / sizeof(float);

__global__ void copy_kernel(const float* from, float* to) {
  auto& stage = dynamic_shared<SharedArray<float, 4>>();
  cp_async16(&stage[0], from);
  cp_async_commit();
  cp_async_wait<0>();
  for (int i = 0; i < 4; ++i) to[i] = stage[i] + 1;
}

TEST_SUITE("cuda_emulator/driver") {
  TEST_CASE("kernels see one piece of memory at two addresses, and none where nothing is mapped") {
    reset();
    FakeDriver driver;
    CudaArena arena(emulator::driver_table(), 0, handle_bytes);
    const std::array<HandleId, 2> handles{arena.create(), arena.create()};
    std::byte* const first = arena.reserve(2 * handle_bytes);
    std::byte* const second = arena.reserve(2 * handle_bytes);
    arena.map(first, handles);
    arena.map(second, {&handles[1], 1});
    auto* const floats = reinterpret_cast<float*>(first);
    auto* const others = reinterpret_cast<float*>(second);

    // Four floats across the border of the two handles, then seen through the other view.
    const std::array<float, 4> values{1, 2, 3, 4};
    float* const across = floats + handle_floats - 2;
    CHECK(cudaMemcpy(across, values.data(), sizeof(values), cudaMemcpyHostToDevice) == cudaSuccess);
    launch({.threads = 1, .shared_bytes = 16}, copy_kernel, static_cast<const float*>(others),
           others + 4);
    std::array<float, 4> result{};
    cudaDeviceSynchronize();
    CHECK(cudaMemcpy(result.data(), floats + handle_floats + 4, sizeof(result),
                     cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(result[0] == 4);
    CHECK(result[1] == 5);
    CHECK(emulator::fault_text() == "");

    arena.unmap(second, {&handles[1], 1});
    CHECK(contains(fault_of({},
                            [&] {
                              launch({.threads = 1, .shared_bytes = 16}, copy_kernel,
                                     static_cast<const float*>(others), floats);
                            }),
                   "not inside of an allocation of the device"));
    CHECK(contains(fault_of({},
                            [&] {
                              launch({.threads = 1, .shared_bytes = 16}, copy_kernel,
                                     static_cast<const float*>(floats), others);
                            }),
                   "an access to memory that is not the device's"));
    CHECK(cudaMemcpy(others, values.data(), 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    reset();

    arena.unmap(first, handles);
    for (const HandleId handle : handles) arena.release(handle);
    arena.unreserve(first, 2 * handle_bytes);
    arena.unreserve(second, 2 * handle_bytes);
    CHECK(driver.broken_rules().empty());
    CHECK(driver.is_clean());
  }

  TEST_CASE("a fill is done before later work of a stream that waits for no other one") {
    reset();
    FakeDriver driver;
    CudaArena arena(emulator::driver_table(), 0, handle_bytes);
    const std::array<HandleId, 1> handles{arena.create()};
    std::byte* const memory = arena.reserve(handle_bytes);
    arena.map(memory, handles);
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    std::array<std::byte, 64> bytes{};
    for (const std::byte value : {std::byte{3}, std::byte{255}}) {
      arena.fill(memory, handle_bytes, value);
      CHECK(cudaMemcpyAsync(bytes.data(), memory + 4096, bytes.size(), cudaMemcpyDeviceToHost,
                            stream) == cudaSuccess);
      CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
      CHECK(bytes.front() == value);
      CHECK(bytes.back() == value);
    }
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    arena.unmap(memory, handles);
    arena.release(handles[0]);
    arena.unreserve(memory, handle_bytes);
  }
}

}  // namespace

}  // namespace driver_test
