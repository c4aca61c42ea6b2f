#include <sys/resource.h>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "kernels/arena/host_arena.h"
#include "kernels/arena/superblocks.h"
#include "tests/kernels/arena/arena_laws.h"

namespace arena_superblocks_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Narrows ulimit -f until it goes.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit narrow = {.rlim_cur = bytes, .rlim_max = old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &narrow);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &old_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit old_{};
};

/// Whether what one view writes is seen through another.
bool views_alias(SuperblockMap& map) {
  map.own(SuperblockId{1}, ViewId{0});
  return !read_faults(map.plane(ViewId{1}, 0) + granite_shape().shape.superblock_bytes);
}

}  // namespace

TEST_SUITE("kernels/arena/host_superblocks") {
  TEST_CASE("views alias in mode flip alone") {
    const SuperblockShape shape = granite_shape().shape;
    CHECK(views_alias(*make_host_superblocks(shape, {.mode = MapMode::flip})));
    CHECK_FALSE(views_alias(*make_host_superblocks(shape, {.mode = MapMode::remap})));
    CHECK_FALSE(views_alias(*make_host_superblocks(shape, {.mode = MapMode::flat})));
  }

  TEST_CASE("a small ulimit -f is no error") {
    const SuperblockShape shape = granite_shape().shape;
    log::set_level(log::Level::warn);
    const FileLimit limit(10000);
    HostArena arena(4096);
    arena.release(arena.create());
    const HandleId first = arena.create();
    const HandleId second = arena.create();
    CHECK_THROWS_AS(arena.create(), Error);
    CHECK(arena.handles_held() == 2);
    arena.release(first);
    arena.release(second);
    const auto map = make_host_superblocks(shape, {.mode = MapMode::flip});
    CHECK_FALSE(views_alias(*map));
    log::set_level(log::Level::info);
    map->plane(ViewId{0}, 3)[shape.plane_bytes[0][3]] = std::byte{1};
  }

  TEST_CASE("a system that allows few mappings is no error") {
    const SuperblockShape shape = granite_shape(40000).shape;
    for (const MapMode mode : {MapMode::flip, MapMode::remap, MapMode::flat}) {
      log::set_level(log::Level::warn);
      const auto map = make_host_superblocks(shape, {.mode = mode});
      log::set_level(log::Level::info);
      for (const std::int32_t b : {39999, 7, 20000}) {
        map->own(SuperblockId{b}, ViewId{0});
        std::byte* const piece =
            map->plane(ViewId{0}, 3) + static_cast<std::size_t>(b) * shape.plane_bytes[0][3];
        *piece = std::byte{9};
        CHECK(*piece == std::byte{9});
        map->give_back(SuperblockId{b});
        CHECK(*piece == std::byte{0});
      }
      CHECK(map->bytes_backed() == 0);
    }
    // Strict mode without faults would be no strict mode.
    CHECK_THROWS_AS(make_host_superblocks(shape, {.mode = MapMode::flip, .strict = true}), Error);
  }

  TEST_CASE("what processes share is one arena in every mode, also where limits are small") {
    for (const std::int32_t superblocks : {5, 40000}) {
      const SuperblockShape shape = granite_shape(superblocks).shape;
      for (const MapMode mode : {MapMode::flip, MapMode::remap, MapMode::flat}) {
        log::set_level(log::Level::warn);
        const FileLimit limit(10000);
        const auto map = make_host_superblocks(shape, {.mode = mode, .is_shared = true});
        log::set_level(log::Level::info);
        const SuperblockId last{superblocks - 1};
        std::byte* const piece =
            map->plane(ViewId{0}, 3) +
            static_cast<std::size_t>(superblocks - 1) * shape.plane_bytes[0][3];
        map->own(last, ViewId{0});
        *piece = std::byte{9};
        if (mode != MapMode::flat) {
          map->own(last, ViewId{1});
          map->own(last, ViewId{0});
          CHECK(*piece == std::byte{0});
          *piece = std::byte{9};
        }
        map->give_back(last);
        CHECK(*piece == std::byte{0});
        CHECK(map->bytes_backed() == 0);
      }
      CHECK_THROWS_AS(
          make_host_superblocks(shape, {.mode = MapMode::flip, .strict = true, .is_shared = true}),
          Error);
    }
  }

  TEST_CASE("one kind of memory needs no aliases") {
    SuperblockShape shape = shape_of("attention alone", {pages_of(4, 128)}).shape;
    shape.plane_bytes.resize(3);  // no slots, no packed snapshots
    const FileLimit limit(0);
    const auto map = make_host_superblocks(shape, {.mode = MapMode::flip});
    map->own(SuperblockId{2}, ViewId{0});
    *map->plane(ViewId{0}, 3) = std::byte{1};
    CHECK(map->bytes_backed() == 3 * shape.superblock_bytes);
  }
}

}  // namespace arena_superblocks_test
