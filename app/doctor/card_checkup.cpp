#include "app/doctor/card_checkup.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "kernels/arena/cuda_arena.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/library_products.h"
#include "kernels/probe.h"
#include "kernels/transfer.h"

namespace hyb::app {
namespace {

using namespace kernels;

/// What `action` throws as a text; "" where it does not.
template <typename Action>
std::string failure_of(const Action& action) {
  try {
    action();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// Whether bytes written where a handle is mapped are read where it is mapped too.
bool shows_aliases(Queue& queue, Arena& arena) {
  const std::size_t bytes = arena.handle_bytes();
  std::byte* const range = arena.reserve(2 * bytes);
  const HandleId handle = arena.create();
  arena.map(range, {&handle, 1});
  arena.map(range + bytes, {&handle, 1});
  const std::array written = {std::byte{0x5a}, std::byte{0xc3}, std::byte{0x0f}, std::byte{0x96}};
  std::array<std::byte, 4> read{};
  upload(queue, range + bytes / 2, written);
  download(queue, read, range + bytes + bytes / 2);
  arena.unmap(range, handle);
  arena.unmap(range + bytes, handle);
  arena.release(handle);
  arena.unreserve(range, 2 * bytes);
  return read == written;
}

void try_mappings(Queue& queue, CardCheckup& checkup) {
  if constexpr (has_cuda) {
    checkup.mapping_failure = failure_of([&] {
      checkup.mapping_bytes = handle_bytes_min(Device::cuda);
      CudaArena arena(cuda::driver(), 0, checkup.mapping_bytes);
      checkup.aliases = shows_aliases(queue, arena);
    });
  }
}

/// The best of some rounds: the first finds the card's clocks low.
void measure_copies(Queue& queue, CardCheckup& checkup) {
  constexpr std::size_t probed_bytes = std::size_t{256} << 20;
  constexpr int rounds = 3;
  checkup.copy_failure = failure_of([&] {
    ReadProbe probe(queue, probed_bytes);
    for (int i = 0; i < rounds; ++i) {
      checkup.bytes_per_s = std::max(checkup.bytes_per_s, probe.bytes_per_s());
    }
  });
}

CardCheckup examine_card() {
  CardCheckup checkup;
  checkup.card = kernels::card();
  Queue queue(Device::cuda, {.threads = 1, .isa = {}});
  if constexpr (has_cuda) {
    checkup.has_library = queue.stream().products() != nullptr;
    checkup.library = queue.stream().products_text();
  }
  try_mappings(queue, checkup);
  measure_copies(queue, checkup);
  return checkup;
}

}  // namespace

CudaCheckup examine_cuda() {
  CudaCheckup checkup;
  checkup.build_has_cuda = has_cuda;
  checkup.traces = card_traces();
  if (!has_cuda) return checkup;
  checkup.failure = failure_of([&] { checkup.card = examine_card(); });
  return checkup;
}

}  // namespace hyb::app
