#include "kernels/card.h"

#include "core/base/error.h"
#include "kernels/arena/cuda_arena.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/memory.h"

namespace hyb::kernels {
namespace {

[[noreturn]] void fail_without_cuda() {
  throw Error(ErrorKind::usage,
              "cuda: this build of hyb has no CUDA; configure it with -DHYB_CUDA=ON where nvcc is "
              "(kernels/cuda/README.md), or use --device cpu");
}

}  // namespace

Card card(int number) {
  if constexpr (has_cuda) return cuda::card(number);
  fail_without_cuda();
}

int card_count() {
  if constexpr (has_cuda) return cuda::card_count();
  fail_without_cuda();
}

bool are_peers(int card, int other) {
  if constexpr (has_cuda) return cuda::are_peers(card, other);
  fail_without_cuda();
}

std::size_t handle_bytes_min(Device device) {
  constexpr std::size_t page = 4096;
  if (device == Device::cpu) return page;
  if constexpr (has_cuda) return CudaArena::granularity(cuda::driver(), 0);
  fail_without_cuda();
}

}  // namespace hyb::kernels
