#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "core/base/error.h"
#include "kernels/arena/arena.h"
#include "tests/kernels/arena/faults.h"

namespace hyb::kernels::testing {

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
  arena.unmap(first, handles[0]);
  CHECK(read_faults(first));
  CHECK(read_faults(first + bytes - 1));
  CHECK(second[bytes] == std::byte{9});
  CHECK(first[bytes] == std::byte{2});
  arena.map(first + 3 * bytes, std::span(handles).first(1));
  CHECK(first[3 * bytes] == std::byte{9});

  // Another process sees it through the descriptor.
  const ExportedHandle exported = arena.export_handle(handles[1]);
  CHECK(exported.bytes == bytes);
  CHECK(exported.fd >= 0);
  close(exported.fd);

  // Broken rules are told, and change nothing.
  CHECK_THROWS_AS(arena.release(handles[0]), Error);
  CHECK_THROWS_AS(arena.unmap(first, HandleId{77}), Error);
  CHECK_THROWS_AS(arena.map(first, std::array{HandleId{-1}}), Error);
  CHECK(first[3 * bytes] == std::byte{9});

  arena.unmap(first + 3 * bytes, handles[0]);
  arena.unmap(first + bytes, handles[1]);
  arena.unmap(first + 2 * bytes, handles[2]);
  CHECK_THROWS_AS(arena.unmap(first + bytes, handles[1]), Error);
  arena.unmap(second, handles[2]);
  arena.unmap(second + bytes, handles[0]);
  for (const HandleId handle : handles) arena.release(handle);
  CHECK_THROWS_AS(arena.release(handles[1]), Error);
  CHECK(arena.handles_held() == 0);
  arena.unreserve(first, 4 * bytes);
  arena.unreserve(second, 2 * bytes);
}

}  // namespace hyb::kernels::testing
