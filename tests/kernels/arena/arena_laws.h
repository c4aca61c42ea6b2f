#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/pool/layout.h"
#include "kernels/arena/arena.h"
#include "kernels/arena/superblock_map.h"

namespace hyb::kernels::testing {

/// Whether reading the byte at `at` ends a process, tried in a child.
inline bool read_faults(const void* at) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
    const volatile std::byte* const byte = static_cast<const std::byte*>(at);
    _exit(std::to_integer<int>(*byte) >= 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

/// What every Arena keeps, whatever its device; memory here is readable by the CPU.
inline void check_arena_laws(Arena& arena) {
  const std::size_t bytes = arena.handle_bytes();
  std::byte* const first = arena.reserve(4 * bytes);
  std::byte* const second = arena.reserve(2 * bytes);
  CHECK(read_faults(first));
  const std::array handles = {arena.create(), arena.create(), arena.create()};
  CHECK(arena.handles_held() == 3);
  CHECK(arena.bytes_held() == 3 * bytes);

  // One page of memory at two addresses.
  arena.map(first, handles);
  const std::array swapped = {handles[2], handles[0]};
  arena.map(second, swapped);
  for (std::size_t i = 0; i < 3; ++i) arena.fill(first + i * bytes, bytes, std::byte(i + 1));
  CHECK(std::all_of(second, second + bytes, [](std::byte byte) { return byte == std::byte{3}; }));
  CHECK(second[2 * bytes - 1] == std::byte{1});
  second[bytes] = std::byte{9};
  CHECK(first[0] == std::byte{9});
  CHECK(read_faults(first + 3 * bytes));

  // What is unmapped faults there, is untouched elsewhere, and can be mapped again.
  arena.unmap(first, std::span(handles).first(1));
  CHECK(read_faults(first));
  CHECK(read_faults(first + bytes - 1));
  CHECK(second[bytes] == std::byte{9});
  CHECK(first[bytes] == std::byte{2});
  arena.map(first + 3 * bytes, std::span(handles).first(1));
  CHECK(first[3 * bytes] == std::byte{9});

  // Broken rules are reported, and change nothing.
  CHECK_THROWS_AS(arena.release(handles[0]), Error);
  CHECK_THROWS_AS(arena.unmap(first, std::array{HandleId{77}}), Error);
  CHECK_THROWS_AS(arena.map(first, std::array{HandleId{-1}}), Error);
  CHECK(first[3 * bytes] == std::byte{9});

  arena.unmap(first + bytes, std::array{handles[1], handles[2], handles[0]});  // of two map()s
  CHECK(read_faults(first + bytes));
  CHECK(read_faults(first + 3 * bytes));
  CHECK_THROWS_AS(arena.unmap(first + bytes, std::span(handles).subspan(1, 1)), Error);
  arena.unmap(second, swapped);
  for (const HandleId handle : handles) arena.release(handle);
  CHECK_THROWS_AS(arena.release(handles[1]), Error);
  CHECK(arena.handles_held() == 0);
  arena.unreserve(first, 4 * bytes);
  arena.unreserve(second, 2 * bytes);
}

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

/// Published models with f32 slots and int8 snapshots, and shapes that no model has yet.
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
