#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/support.h"

namespace early_start_test {

using namespace emulator::testing;
using namespace hyb::kernels::cuda;

namespace {

constexpr int blocks = 6, threads = 64, count = blocks * threads;

enum class Bug { none, reads_early, writes_early, never_waits };

/// y[i] = x[i] + w[i], where x is the kernel's before, w is a weight that may be read early, and y
/// is read by the kernel before.
template <Bug B>
__global__ void step_kernel(const int* x, const int* w, int* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  let_next_kernel_start();
  const int weight = w[i];
  if constexpr (B == Bug::reads_early) {
    const int early = x[(i + threads) % count];
    wait_for_previous_kernel();
    y[i] = early + weight;
  } else if constexpr (B == Bug::writes_early) {
    y[i] = -1;
    wait_for_previous_kernel();
    y[i] = x[(i + threads) % count] + weight;
  } else {
    if constexpr (B != Bug::never_waits) wait_for_previous_kernel();
    y[i] = x[(i + threads) % count] + weight;
  }
}

__global__ void no_op_kernel(int*) {
  let_next_kernel_start();
  wait_for_previous_kernel();
}

/// A chain of kernels over three buffers in turn; kernel `bad` has the bug.
template <Bug B>
bool chain_is_right(const Schedule& schedule, int length, int bad, bool starts_early = true) {
  bool right = true;
  const std::string fault = fault_of(schedule, [&] {
    std::vector<int> start(count), weights(count);
    for (int i = 0; i < count; ++i) start[static_cast<std::size_t>(i)] = i;
    for (int i = 0; i < count; ++i) weights[static_cast<std::size_t>(i)] = 1000 * (i % 7);
    const DeviceArray<int> first(start), second(std::size_t{count}), third(std::size_t{count}),
        w(weights);
    int* const buffers[] = {first.data(), second.data(), third.data()};
    for (int k = 0; k < length; ++k) {
      launch({.blocks = blocks, .threads = threads, .starts_early = starts_early},
             k == bad ? step_kernel<B> : step_kernel<Bug::none>,
             static_cast<const int*>(buffers[k % 3]), static_cast<const int*>(w.data()),
             buffers[(k + 1) % 3]);
    }
    std::vector<int> expected = start;
    for (int k = 0; k < length; ++k) {
      std::vector<int> next(count);
      for (std::size_t i = 0; i < count; ++i) {
        next[i] = expected[(i + threads) % count] + weights[i];
      }
      expected = next;
    }
    const DeviceArray<int>* const arrays[] = {&first, &second, &third};
    right = arrays[length % 3]->values() == expected;
  });
  CHECK(fault == "");
  return right;
}

TEST_SUITE("cuda_emulator/early_start") {
  TEST_CASE("a chain that keeps the rules is right in every schedule") {
    for (Schedule schedule : schedules()) {
      CAPTURE(name_of(schedule));
      for (const bool early : {true, false}) {
        schedule.early_start = early;
        CHECK(chain_is_right<Bug::none>(schedule, 7, -1));
      }
    }
  }

  TEST_CASE("reading the result of the kernel before it, before the wait, shows") {
    for (const Schedule& schedule : schedules()) {
      CAPTURE(name_of(schedule));
      CHECK_FALSE(chain_is_right<Bug::reads_early>(schedule, 3, 1));
    }
  }

  TEST_CASE("writing before the wait what a kernel before it still reads shows") {
    // Kernel 2 of the chain writes the buffer that kernel 0 reads.
    int found = 0;
    for (const Schedule& schedule : schedules()) {
      if (!chain_is_right<Bug::writes_early>(schedule, 3, 2)) ++found;
    }
    CHECK(found == static_cast<int>(schedules().size()));
  }

  TEST_CASE("a kernel that never waits shows") {
    CHECK_FALSE(chain_is_right<Bug::never_waits>({}, 3, 1));
  }

  TEST_CASE("without the attribute, or without early starts, order hides all of it") {
    CHECK(chain_is_right<Bug::reads_early>({}, 3, 1, false));
    CHECK(chain_is_right<Bug::reads_early>({.early_start = false}, 3, 1));
  }

  TEST_CASE("kernels that were compiled for older cards do not start early") {
    reset();
    const DeviceArray<int> y(std::size_t{1});
    for (const int version : {90, 80}) {
      emulator::set_ptx_version(version);
      hyb::kernels::cuda::Stream stream;
      emulator::take_host_calls();
      for (int i = 0; i < 2; ++i) {
        hyb::kernels::cuda::launch(stream, {.blocks = 1, .threads = 32}, no_op_kernel, y.data());
      }
      stream.wait();
      CHECK(emulator::take_host_calls().early_kernels == (version == 90 ? 2 : 0));
    }
    emulator::set_ptx_version(90);
  }
}

}  // namespace

}  // namespace early_start_test
