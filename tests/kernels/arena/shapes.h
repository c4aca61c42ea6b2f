#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/memory/layout.h"
#include "kernels/arena/superblock_map.h"

namespace hyb::kernels::testing {

/// A model's memory in small: sizes of the real one divided by 512, with handles of 4 KiB for 2
/// MiB.
struct NamedShape {
  std::string name;
  SuperblockShape shape;
  SuperblockPlan plan;
};

inline constexpr std::size_t small_handle = 4096;

inline ViewRequest pages_of(std::size_t layers, std::size_t page_bytes) {
  return {.plane_unit_bytes = std::vector<std::size_t>(layers, page_bytes), .may_stretch = false};
}
inline ViewRequest units_of(std::size_t bytes) {
  return {.plane_unit_bytes = {bytes}, .may_stretch = true};
}

inline NamedShape shape_of(const std::string& name, const std::vector<ViewRequest>& views,
                           std::int32_t superblocks = 3, std::size_t handle = small_handle) {
  const SuperblockPlan plan = plan_superblocks(views, handle, 4096 * handle);
  SuperblockShape shape = {.handle_bytes = handle,
                           .superblock_bytes = plan.superblock_bytes(),
                           .superblocks = superblocks,
                           .plane_bytes = {}};
  for (const ViewPlan& view : plan.views) shape.plane_bytes.push_back(view.plane_bytes);
  return {.name = name, .shape = shape, .plan = plan};
}

inline NamedShape granite_shape(std::int32_t superblocks = 3) {
  return shape_of("granite-4.0-h-tiny", {pages_of(4, 64), units_of(112000)}, superblocks);
}

/// The models of memory.md 5.1 with f32 slots and int8 snapshots, and shapes that no model has yet.
inline std::vector<NamedShape> small_shapes() {
  return {
      granite_shape(),
      shape_of("granite and packed", {pages_of(4, 64), units_of(112000), units_of(29888)}),
      shape_of("Nemotron-Nano-12B-v2", {pages_of(6, 128), units_of(290752), units_of(77440)}),
      shape_of("Qwen3-Next-80B-A3B", {pages_of(12, 64), units_of(150912), units_of(40960)}),
      shape_of("Nemotron-3-Nano-30B-A3B", {pages_of(6, 32), units_of(95872), units_of(26048)}),
      shape_of("attention alone", {pages_of(32, 128)}),
      shape_of("recurrent alone", {units_of(95872), units_of(26048)}),
      shape_of("slots alone", {units_of(4096)}),
      shape_of("full and window layers", {pages_of(10, 64), pages_of(20, 64)}),
      shape_of("Gemma-3-27B", {pages_of(10, 512), pages_of(52, 512)}, 2),
      shape_of("odd pages, small slots", {pages_of(3, 192), pages_of(1, 320), units_of(704)}),
      shape_of("layers of two widths", {{.plane_unit_bytes = {128, 64, 64, 256}}, units_of(3000)}),
  };
}

}  // namespace hyb::kernels::testing
