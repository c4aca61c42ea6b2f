#include "kernels/arena/host_superblocks.h"

#include <fmt/format.h>

#include "core/base/log.h"
#include "kernels/arena/host_arena.h"
#include "kernels/arena/private_arena.h"

namespace hyb::kernels {

std::unique_ptr<SuperblockMap> make_host_superblocks(const SuperblockShape& shape,
                                                     SuperblockMapOptions options) {
  const std::size_t handle_bytes = SuperblockMap::handle_bytes(shape);
  const bool needs_aliases = options.mode == MapMode::flip && shape.views_with_memory() > 1;
  const std::size_t bytes = shape.superblock_bytes * static_cast<std::size_t>(shape.superblocks);
  if (needs_aliases && bytes > HostArena::bytes_max()) {
    log::info(
        fmt::format("memory: ulimit -f allows {} bytes of shared memory, less than {}; "
                    "superblocks change owners by mapping (--memory-mode remap)",
                    HostArena::bytes_max(), bytes));
    options.mode = MapMode::remap;
    return make_host_superblocks(shape, options);
  }
  std::unique_ptr<Arena> arena;
  if (needs_aliases) {
    arena = std::make_unique<HostArena>(handle_bytes);
  } else {
    arena = std::make_unique<PrivateArena>(handle_bytes);
  }
  return std::make_unique<SuperblockMap>(std::move(arena), shape, options);
}

}  // namespace hyb::kernels
