#include "kernels/arena/superblocks.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "kernels/arena/cuda_arena.h"
#include "kernels/arena/host_arena.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/memory.h"

namespace hyb::kernels {
namespace {

bool needs_aliases(const SuperblockShape& shape, const SuperblockMapOptions& options) {
  return options.mode == MapMode::flip && shape.views_with_memory() > 1;
}

bool has_too_many_mappings(const SuperblockShape& shape, const SuperblockMapOptions& options) {
  return SuperblockMap::mappings_needed(shape, options) > host_memory::mappings_max();
}

/// Why views cannot alias here; empty: they can.
std::string obstacle_to_aliases(const SuperblockShape& shape, const SuperblockMapOptions& options) {
  if (options.is_shared) return "processes that share it see each byte at one address";
  const std::size_t bytes = shape.superblock_bytes * static_cast<std::size_t>(shape.superblocks);
  if (bytes > HostArena::bytes_max()) {
    return fmt::format("ulimit -f allows {} bytes of shared memory, not {}", HostArena::bytes_max(),
                       bytes);
  }
  if (!options.strict && has_too_many_mappings(shape, options)) {
    return fmt::format("vm.max_map_count allows {} mappings more, not {}",
                       host_memory::mappings_max(), SuperblockMap::mappings_needed(shape, options));
  }
  return {};
}

}  // namespace

std::unique_ptr<SuperblockMap> make_host_superblocks(const SuperblockShape& shape,
                                                     SuperblockMapOptions options) {
  require(!options.is_shared || !options.strict, "memory: what processes share does not fault");
  const std::size_t handle_bytes = SuperblockMap::handle_bytes(shape);
  std::unique_ptr<Arena> arena;
  if (needs_aliases(shape, options)) {
    const std::string obstacle = obstacle_to_aliases(shape, options);
    if (obstacle.empty()) {
      arena = std::make_unique<HostArena>(handle_bytes);
      return std::make_unique<SuperblockMap>(std::move(arena), shape, options);
    }
    log::info("memory: " + obstacle + "; --memory-mode is remap instead of flip");
    options.mode = MapMode::remap;
  }
  if (options.is_shared) {
    arena = std::make_unique<SharedArena>(handle_bytes);
    return std::make_unique<SuperblockMap>(std::move(arena), shape, options);
  }
  const Unmapped unmapped =
      has_too_many_mappings(shape, options) ? Unmapped::zeros : Unmapped::faults;
  arena = std::make_unique<PrivateArena>(handle_bytes, unmapped);
  return std::make_unique<SuperblockMap>(std::move(arena), shape, options);
}

std::unique_ptr<SuperblockMap> make_superblocks(Device device, const SuperblockShape& shape,
                                                const SuperblockMapOptions& options) {
  if (device == Device::cpu) return make_host_superblocks(shape, options);
  require(!options.is_shared, "memory: forked processes have no card");
  if constexpr (has_cuda) {
    cuda::use_card(options.card);
    auto arena = std::make_unique<CudaArena>(cuda::driver(), options.card,
                                             SuperblockMap::handle_bytes(shape), options.peers);
    return std::make_unique<SuperblockMap>(std::move(arena), shape, options);
  }
  throw Error(ErrorKind::usage, "memory: this build has no CUDA; use --device cpu");
}

double driver_call_seconds(Device device, int card) {
  if constexpr (has_cuda) {
    if (device == Device::cpu) return 0;
    constexpr std::int32_t handles = 8;
    constexpr int rounds = 3;  // the first of all calls makes what later ones find
    const DriverTable driver = cuda::driver();
    const std::size_t unit = CudaArena::granularity(driver, card);
    const SuperblockShape shape = {.handle_bytes = unit,
                                   .superblock_bytes = unit,
                                   .superblocks = handles,
                                   .plane_bytes = {{unit}, {unit}}};
    double least = std::numeric_limits<double>::max();
    try {
      for (int i = 0; i < rounds; ++i) {
        const double begin = driver.now();
        const auto tried = make_superblocks(device, shape, {.card = card});
        least = std::min(least, driver.now() - begin);
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::memory) throw;
      return 0;
    }
    return least / (handles * (1.0 + static_cast<double>(shape.plane_bytes.size())));
  }
  return 0;
}

}  // namespace hyb::kernels
