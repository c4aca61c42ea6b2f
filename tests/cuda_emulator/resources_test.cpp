#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/routes.h"
#include "kernels/launch_tuning.h"
#include "tests/cuda/support.h"
#include "tests/cuda_emulator/card.h"
#include "tests/cuda_emulator/runtime/kernel_table.h"
#include "tests/cuda_emulator/support.h"

namespace resources_test {

using namespace emulator::testing;
using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;
using emulator::registers_of_block;

namespace {

/// What a launch of a kernel that ptxas.tsv has is refused with; empty: nothing.
std::string refusal() {
  cuda::Stream stream;
  const TestTensor numbers(DType::f32, {1, 300});
  const DeviceTensor x(numbers);
  try {
    cuda::cap(stream, {.x = x, .cap = 2.0F});
    stream.wait();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Sums {
  cuda::SharedArray<float, 256> of;
};

/// Has 1 KB of static shared memory besides what a launch gives it.
__global__ void sums_kernel(float* y) {
  auto& sums = cuda::shared_object<Sums>().of;
  sums[static_cast<int>(threadIdx.x)] = 2.0F;
  y[threadIdx.x] = sums[static_cast<int>(threadIdx.x)];
}

TEST_SUITE("cuda_emulator/resources") {
  TEST_CASE("how kernels start is that of the tuning when their queue was made") {
    reset();
    const auto* const kernel = reinterpret_cast<const void*>(&sums_kernel);
    const DeviceArray<float> y(std::size_t{32});
    const auto early_of = [&] {
      cuda::Stream stream;
      set_launch_tuning({});
      emulator::take_host_calls();
      cuda::launch(stream, {.blocks = 1, .threads = 32}, sums_kernel, y.data());
      stream.wait();
      return emulator::take_host_calls().early_kernels;
    };
    CHECK(early_of() == 1);
    CHECK(emulator::carveout_of(kernel) == -1);
    set_launch_tuning({.carveout = 75, .early_starts = false});
    CHECK(early_of() == 0);
    CHECK(emulator::carveout_of(kernel) == 75);
  }

  TEST_CASE("static and dynamic shared memory may pass 48 KB together") {
    reset();
    cuda::Stream stream;
    const DeviceArray<float> y(std::size_t{32});
    cuda::launch(stream, {.blocks = 1, .threads = 32, .shared_bytes = 48 << 10, .waits = true},
                 sums_kernel, y.data());
    stream.wait();
    CHECK(y.values()[31] == 2.0F);
  }

  TEST_CASE("a recorded launch keeps its shared memory, whatever is launched afterwards") {
    reset();
    cuda::Stream stream;
    const DeviceArray<float> y(std::size_t{32});
    const auto launch_with = [&](std::size_t kilobytes) {
      cuda::launch(stream,
                   {.blocks = 1, .threads = 32, .shared_bytes = kilobytes << 10, .waits = true},
                   sums_kernel, y.data());
    };
    const cuda::Graph graph(stream, [&] { launch_with(120); });
    launch_with(60);
    graph.replay(stream);
    stream.wait();
    CHECK(y.values()[0] == 2.0F);
  }

  TEST_CASE("a block whose threads need more registers than a multiprocessor has is refused") {
    reset();
    CHECK(refusal() == "");
    emulator::set_registers(1024);  // 256 threads take more, whatever the compiler
    CHECK(contains(refusal(), "cudaErrorLaunchOutOfResources"));
    emulator::set_registers(65536);
    reset();
    CHECK(refusal() == "");
  }

  TEST_CASE("registers are counted in eights of a thread, warps in fours") {
    CHECK(registers_of_block({.registers = 32}, 128) == 128 * 32);
    CHECK(registers_of_block({.registers = 33}, 128) == 128 * 40);
    CHECK(registers_of_block({.registers = 40}, 129) == 256 * 40);
    CHECK(registers_of_block({.registers = 255}, 256) == 65536);
  }
}

}  // namespace

}  // namespace resources_test
