#include "models/store_layout.h"

#include <algorithm>
#include <numeric>

namespace hyb::models {
namespace {

/// Small pools are cut finely, large ones into few handles.
std::size_t handle_bytes_for(std::size_t pool_bytes) {
  constexpr std::size_t large = std::size_t{1} << 30;
  return pool_bytes < large ? 4096 : 65536;
}

}  // namespace

StoreLayout store_layout(const ModelMemoryLayout& memory) {
  return {.layout = memory.layout,
          .superblocks = memory.shape(),
          .layers = memory.layers,
          .snapshot = memory.snapshot};
}

StoreLayout flat_memory(const Geometry& geometry, std::int32_t pages, std::int32_t slots,
                        std::size_t handle_bytes_min) {
  StoreLayout memory;
  memory.layout = flat_layout({.pages = geometry.page_bytes == 0 ? 0 : pages,
                               .slots = geometry.slot_bytes == 0 ? 0 : slots,
                               .page_tokens = geometry.page_tokens,
                               .page_bytes = geometry.page_bytes,
                               .slot_bytes = geometry.slot_bytes});
  const std::size_t handle =
      std::max(handle_bytes_min, handle_bytes_for(memory.layout.store_bytes()));
  const auto whole = [&](std::size_t bytes) { return (bytes + handle - 1) / handle * handle; };
  std::vector<std::vector<std::size_t>> planes;
  if (!memory.layout.groups.empty()) {
    planes.emplace_back();
    memory.layers.emplace_back(geometry.pages.size());
    std::iota(memory.layers[0].begin(), memory.layers[0].end(), std::size_t{0});
    for (const PageLayout& page : geometry.pages) {
      planes[0].push_back(whole(static_cast<std::size_t>(pages) * page.page_bytes));
    }
  }
  const SlotShape& slot = memory.layout.slots;
  planes.push_back({whole(static_cast<std::size_t>(slot.per_superblock) * slot.bytes)});
  planes.emplace_back();
  std::size_t superblock = 0;
  for (const std::vector<std::size_t>& view : planes) {
    superblock = std::max(superblock, std::accumulate(view.begin(), view.end(), std::size_t{0}));
  }
  memory.superblocks = {.handle_bytes = handle,
                        .superblock_bytes = superblock,
                        .superblocks = memory.layout.superblocks,
                        .plane_bytes = std::move(planes)};
  return memory;
}

}  // namespace hyb::models
