#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
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

TEST_SUITE("cuda_emulator/resources") {
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
