#include "kernels/arena/private_arena.h"

#include <doctest/doctest.h>

#include <array>
#include <cstring>

#include "core/base/error.h"
#include "tests/kernels/arena/faults.h"

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

TEST_SUITE("kernels/arena/private_arena") {
  TEST_CASE("memory is zero when it is mapped, faults before and after, and aliases nowhere") {
    for (const std::size_t bytes : {4096u, 4u << 20}) {
      PrivateArena arena(bytes);
      CHECK_FALSE(arena.aliases());
      std::byte* const at = arena.reserve(3 * bytes);
      CHECK(read_faults(at));
      const std::array handles = {arena.create(), arena.create()};
      CHECK(arena.bytes_held() == 2 * bytes);
      arena.map(at, handles);
      CHECK(at[2 * bytes - 1] == std::byte{0});
      arena.fill(at, 2 * bytes, std::byte{3});
      CHECK(at[2 * bytes - 1] == std::byte{3});
      CHECK(read_faults(at + 2 * bytes));
      arena.unmap(at, handles[0]);
      CHECK(read_faults(at + bytes - 1));
      CHECK(at[bytes] == std::byte{3});
      arena.map(at, std::array{handles[0]});
      CHECK(at[0] == std::byte{0});
      CHECK_THROWS_AS(arena.release(handles[1]), Error);
      CHECK_THROWS_AS(arena.export_handle(handles[1]), Error);
      arena.unmap(at, handles[0]);
      arena.unmap(at + bytes, handles[1]);
      CHECK_THROWS_AS(arena.unmap(at, handles[0]), Error);
      for (const HandleId handle : handles) arena.release(handle);
      CHECK(arena.bytes_held() == 0);
      arena.unreserve(at, 3 * bytes);
    }
    CHECK_THROWS_AS(PrivateArena(100), Error);
  }

  TEST_CASE("where unused addresses are zeros, unmapping still frees the memory") {
    constexpr std::size_t bytes = 65536;
    PrivateArena arena(bytes, Unmapped::zeros);
    CHECK(arena.mappings_max() > std::size_t{1} << 40);
    std::byte* const at = arena.reserve(2 * bytes);
    const HandleId handle = arena.create();
    CHECK(at[bytes] == std::byte{0});
    arena.map(at + bytes, std::array{handle});
    arena.fill(at + bytes, bytes, std::byte{5});
    CHECK_THROWS_AS(arena.release(handle), Error);
    arena.unmap(at + bytes, handle);
    CHECK(at[bytes] == std::byte{0});
    CHECK(at[2 * bytes - 1] == std::byte{0});
    arena.release(handle);
    arena.unreserve(at, 2 * bytes);
  }
}
