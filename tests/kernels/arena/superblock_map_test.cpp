#include "kernels/arena/superblock_map.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/arena/cuda_arena.h"
#include "kernels/arena/host_arena.h"
#include "tests/kernels/arena/arena_laws.h"
#include "tests/kernels/arena/fake_driver.h"
#include "tests/support/error_text.h"

namespace superblock_map_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;
using hyb::testing::contains;
using hyb::testing::error_text;

namespace {

using MakeArena = std::function<std::unique_ptr<Arena>(const SuperblockShape&)>;

std::unique_ptr<Arena> host(const SuperblockShape& shape) {
  return std::make_unique<HostArena>(SuperblockMap::handle_bytes(shape));
}
std::unique_ptr<Arena> without_aliases(const SuperblockShape& shape) {
  return std::make_unique<PrivateArena>(SuperblockMap::handle_bytes(shape));
}
std::unique_ptr<Arena> shared(const SuperblockShape& shape) {
  return std::make_unique<SharedArena>(SuperblockMap::handle_bytes(shape));
}
std::unique_ptr<Arena> fake_cuda(const SuperblockShape& shape) {
  return std::make_unique<CudaArena>(FakeDriver::table(), 0, SuperblockMap::handle_bytes(shape));
}

/// The part of a superblock that one plane shows, and where it is in the superblock.
struct Piece {
  std::byte* first;
  std::size_t bytes;
  std::size_t offset;
};

std::vector<Piece> pieces(const SuperblockMap& map, const SuperblockShape& shape, int superblock,
                          int view) {
  std::vector<Piece> found;
  std::size_t offset = 0;
  const auto& planes = shape.plane_bytes[static_cast<std::size_t>(view)];
  for (std::size_t p = 0; p < planes.size(); ++p) {
    std::byte* const first =
        map.plane(ViewId{view}, p) + static_cast<std::size_t>(superblock) * planes[p];
    found.push_back({.first = first, .bytes = planes[p], .offset = offset});
    offset += planes[p];
  }
  return found;
}

/// Pages that have memory already.
std::ptrdiff_t pages_backed(const Piece& piece) {
  std::vector<unsigned char> pages(piece.bytes / 4096);
  REQUIRE(mincore(piece.first, piece.bytes, pages.data()) == 0);
  return std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
}

int views_of(const SuperblockShape& shape) { return static_cast<int>(shape.plane_bytes.size()); }

std::vector<std::byte> random_bytes(std::mt19937& random, std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::byte& byte : made) byte = static_cast<std::byte>(random() | 1);
  return made;
}

/// Whether every view of every superblock shows what `memory` has.
bool views_show(const SuperblockMap& map, const SuperblockShape& shape,
                const std::vector<std::vector<std::byte>>& memory) {
  for (int b = 0; b < shape.superblocks; ++b) {
    for (int v = 0; v < views_of(shape); ++v) {
      for (const Piece& piece : pieces(map, shape, b, v)) {
        const std::byte* const wanted = memory[static_cast<std::size_t>(b)].data() + piece.offset;
        if (std::memcmp(piece.first, wanted, piece.bytes) != 0) return false;
      }
    }
  }
  return true;
}

/// Owners and what they wrote, checked against a map through any schedule of its calls.
class Owners {
 public:
  Owners(SuperblockMap& map, const SuperblockShape& shape)
      : map_(map), shape_(shape), owners_(static_cast<std::size_t>(shape.superblocks)) {}

  void own(int b, int view) {
    map_.own(SuperblockId{b}, ViewId{view});
    Owner& owner = owners_[static_cast<std::size_t>(b)];
    if (owner.view != view) {
      owner = {.view = view, .value = static_cast<std::byte>(++writes_ % 250 + 1)};
      for (const Piece& piece : pieces(map_, shape_, b, view)) {
        std::fill_n(piece.first, piece.bytes, owner.value);
      }
    }
  }
  void give_back(int b) {
    owners_[static_cast<std::size_t>(b)] = {};
    map_.give_back(SuperblockId{b});
  }
  int view(int b) const { return owners_[static_cast<std::size_t>(b)].view; }

  bool hold() const {
    for (int b = 0; b < shape_.superblocks; ++b) {
      const Owner& owner = owners_[static_cast<std::size_t>(b)];
      if (index(map_.owner(SuperblockId{b})) != owner.view) return false;
      if (owner.view < 0) continue;
      for (const Piece& piece : pieces(map_, shape_, b, owner.view)) {
        if (!std::all_of(piece.first, piece.first + piece.bytes,
                         [&](std::byte byte) { return byte == owner.value; })) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  struct Owner {
    int view = -1;
    std::byte value{0};
  };
  SuperblockMap& map_;
  const SuperblockShape& shape_;
  std::vector<Owner> owners_;
  int writes_ = 0;
};

/// Random changes of owners, and superblocks given back.
template <typename Attempt>
void shuffle(Owners& owners, const SuperblockShape& shape, int changes, std::uint32_t seed,
             const Attempt& attempt) {
  std::mt19937 random(seed);
  for (int i = 0; i < changes; ++i) {
    const int b = static_cast<int>(random() % static_cast<unsigned>(shape.superblocks));
    const int view = static_cast<int>(random() % static_cast<unsigned>(views_of(shape)));
    if (random() % 4 == 0) {
      attempt([&] { owners.give_back(b); });
    } else {
      attempt([&] { owners.own(b, view); });
    }
    CHECK(owners.hold());
  }
}

void check_law_of_bytes(const NamedShape& named, const MakeArena& make) {
  const SuperblockShape& shape = named.shape;
  std::mt19937 random(11);
  SuperblockMap map(make(shape), shape, {.mode = MapMode::flip});
  std::vector<std::vector<std::byte>> memory(static_cast<std::size_t>(shape.superblocks),
                                             std::vector<std::byte>(shape.superblock_bytes));
  REQUIRE(views_show(map, shape, memory));
  for (int v = 0; v < views_of(shape); ++v) {
    for (int b = 0; b < shape.superblocks; ++b) {
      map.own(SuperblockId{b}, ViewId{v});
      std::vector<std::byte>& bytes = memory[static_cast<std::size_t>(b)];
      for (const Piece& piece : pieces(map, shape, b, v)) {
        const std::vector<std::byte> made = random_bytes(random, piece.bytes);
        std::copy(made.begin(), made.end(), piece.first);
        std::copy(made.begin(), made.end(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(piece.offset));
      }
      CHECK(views_show(map, shape, memory));
    }
  }
}

/// Units by their linear addresses: page u of a layer at u * its bytes, slot u at u * its stride.
void check_law_of_units(const NamedShape& named, const MakeArena& make) {
  const SuperblockShape& shape = named.shape;
  SuperblockMap map(make(shape), shape, {.mode = MapMode::flip});
  std::vector<std::vector<std::byte>> memory(static_cast<std::size_t>(shape.superblocks),
                                             std::vector<std::byte>(shape.superblock_bytes));
  for (int v = 0; v < views_of(shape); ++v) {
    const ViewPlan& plan = named.plan.views[static_cast<std::size_t>(v)];
    const auto units = static_cast<std::size_t>(plan.units_per_superblock);
    for (std::size_t u = 0; u < units * memory.size(); u += 1 + units / 5) {
      std::size_t offset = 0;
      for (std::size_t p = 0; p < plan.plane_bytes.size(); ++p) {
        const std::size_t bytes = plan.plane_bytes[p] / units;
        const auto value = static_cast<std::byte>(u * 31 + p + 1);
        std::fill_n(map.plane(ViewId{v}, p) + u * bytes, bytes, value);
        std::fill_n(
            memory[u / units].begin() + static_cast<std::ptrdiff_t>(offset + u % units * bytes),
            bytes, value);
        offset += plan.plane_bytes[p];
      }
    }
    CHECK(views_show(map, shape, memory));
  }
}

}  // namespace

TEST_SUITE("kernels/arena/superblock_map") {
  TEST_CASE("a view's bytes are exactly those of its superblock in every other view") {
    for (const NamedShape& named : small_shapes()) {
      CAPTURE(named.name);
      check_law_of_bytes(named, host);
      check_law_of_units(named, host);
      const FakeDriver driver;
      check_law_of_bytes(named, fake_cuda);
      check_law_of_units(named, fake_cuda);
      CHECK(driver.broken_rules().empty());
      CHECK(driver.is_clean());
    }
  }

  TEST_CASE("handles are as large as all planes allow") {
    const NamedShape granite = granite_shape();
    CHECK(granite.plan.handles == 28);
    CHECK(SuperblockMap::handle_bytes(granite.shape) == 7 * small_handle);
    FakeDriver driver;
    const SuperblockMap map(fake_cuda(granite.shape), granite.shape, {});
    CHECK(driver.handles() == 3 * 4);
    CHECK(driver.mappings() == 3 * (4 + 4));
    CHECK(map.bytes_backed() == 3 * granite.shape.superblock_bytes);
  }

  TEST_CASE("start and end in mode flip make few calls beyond one to create and map each handle") {
    for (const std::int32_t superblocks : {3, 300}) {
      const NamedShape granite = granite_shape(superblocks);
      const FakeDriver driver;
      int calls = driver.calls();
      const auto calls_since = [&] {
        return driver.calls() - std::exchange(calls, driver.calls());
      };
      const int handles = superblocks * 4, views = 2;
      const int planes = static_cast<int>(granite.shape.plane_bytes[0].size() +
                                          granite.shape.plane_bytes[1].size());
      auto map = std::make_unique<SuperblockMap>(fake_cuda(granite.shape), granite.shape,
                                                 SuperblockMapOptions{});
      CHECK(calls_since() == 1 + handles * (1 + views) + 2 * planes);  // reserved, made accessible
      map->own(SuperblockId{1}, ViewId{0});
      map.reset();
      CHECK(calls_since() == handles + 2 * planes);
    }
  }

  TEST_CASE("a change of owner in mode flip makes no call") {
    const NamedShape granite = granite_shape();
    const FakeDriver driver;
    SuperblockMap map(fake_cuda(granite.shape), granite.shape, {});
    const int calls = driver.calls();
    for (int i = 0; i < 12; ++i) map.own(SuperblockId{i % 3}, ViewId{i % 2});
    CHECK(driver.calls() == calls);
  }

  TEST_CASE("owners keep what they wrote, in every mode and on every device") {
    const SuperblockMapOptions all[] = {{.mode = MapMode::flip},
                                        {.mode = MapMode::flip, .strict = true},
                                        {.mode = MapMode::flip, .strict = true, .poison = true},
                                        {.mode = MapMode::remap},
                                        {.mode = MapMode::remap, .poison = true}};
    const auto just_do = [](const auto& action) { action(); };
    for (const NamedShape& named : small_shapes()) {
      CAPTURE(named.name);
      for (const SuperblockMapOptions& options : all) {
        for (const MakeArena& make : {MakeArena(host), MakeArena(fake_cuda),
                                      MakeArena(without_aliases), MakeArena(shared)}) {
          const FakeDriver driver;
          const bool maps_all = options.mode == MapMode::flip && !options.strict;
          if (maps_all && !make(named.shape)->aliases()) continue;
          {
            SuperblockMap map(make(named.shape), named.shape, options);
            Owners owners(map, named.shape);
            shuffle(owners, named.shape, 8, 3, just_do);
          }
          CHECK(driver.broken_rules().empty());
          CHECK(driver.is_clean());
        }
      }
    }
  }

  TEST_CASE("only the owner's view can be touched in strict and remap") {
    const NamedShape granite = granite_shape();
    for (const SuperblockMapOptions& options :
         {SuperblockMapOptions{.mode = MapMode::flip, .strict = true},
          SuperblockMapOptions{.mode = MapMode::remap}}) {
      SuperblockMap map(host(granite.shape), granite.shape, options);
      for (int v = 0; v < views_of(granite.shape); ++v) {
        for (const Piece& piece : pieces(map, granite.shape, 1, v)) {
          CHECK(read_faults(piece.first));
        }
      }
      for (const int owner : {0, 1, 0}) {
        map.own(SuperblockId{1}, ViewId{owner});
        for (int v = 0; v < views_of(granite.shape); ++v) {
          for (const Piece& piece : pieces(map, granite.shape, 1, v)) {
            CHECK(read_faults(piece.first) == (v != owner));
            CHECK(read_faults(piece.first + piece.bytes - 1) == (v != owner));
          }
        }
      }
      CHECK(read_faults(map.plane(ViewId{0}, 0)));
    }
  }

  TEST_CASE("the memory of a superblock that was given back is gone, and comes again") {
    const NamedShape granite = granite_shape();
    for (const MapMode mode : {MapMode::flip, MapMode::remap, MapMode::flat}) {
      SuperblockMap map(host(granite.shape), granite.shape, {.mode = mode});
      for (int b = 0; b < 3; ++b) map.own(SuperblockId{b}, ViewId{0});
      CHECK(map.bytes_backed() == 3 * granite.shape.superblock_bytes);
      map.give_back(SuperblockId{1});
      CHECK(map.bytes_backed() == 2 * granite.shape.superblock_bytes);
      CHECK(map.owner(SuperblockId{1}) == no_view);
      for (const Piece& piece : pieces(map, granite.shape, 1, 0)) CHECK(read_faults(piece.first));
      map.give_back(SuperblockId{1});
      map.own(SuperblockId{1}, ViewId{1});
      CHECK(map.bytes_backed() == 3 * granite.shape.superblock_bytes);
      for (const Piece& piece : pieces(map, granite.shape, 1, 1)) {
        CHECK(piece.first[piece.bytes - 1] == std::byte{0});
      }
    }
  }

  TEST_CASE("all pages of what was faulted in have memory, and its bytes are as they were") {
    // Superblocks of 3 MiB: 2 planes of pages, or one slot.
    const SuperblockShape shape = {
        .handle_bytes = 4096,
        .superblock_bytes = 3 << 20,
        .superblocks = 4,
        .plane_bytes = {{std::size_t{3} << 19, std::size_t{3} << 19}, {std::size_t{3} << 20}}};
    for (const auto& [mode, make] : {std::pair{MapMode::flip, MakeArena(host)},
                                     {MapMode::remap, MakeArena(host)},
                                     {MapMode::remap, MakeArena(without_aliases)},
                                     {MapMode::remap, MakeArena(shared)}}) {
      for (const int view : {0, 1}) {
        SuperblockMap map(make(shape), shape, {.mode = mode});
        for (const int b : {1, 3}) map.own(SuperblockId{b}, ViewId{view});
        const auto middle = [](const Piece& piece) -> std::byte& {
          return piece.first[piece.bytes / 2];
        };
        for (const Piece& piece : pieces(map, shape, 1, view)) middle(piece) = std::byte{7};
        map.prefault(SuperblockId{1});
        map.wait_for_prefault();
        for (const Piece& piece : pieces(map, shape, 1, view)) {
          CHECK(middle(piece) == std::byte{7});
          CHECK(pages_backed(piece) == static_cast<std::ptrdiff_t>(piece.bytes / 4096));
        }
        // Far enough from the other one to share no huge page with it.
        for (const Piece& piece : pieces(map, shape, 3, view)) CHECK(pages_backed(piece) == 0);
      }
    }
  }

  TEST_CASE("changes of owner in the middle of being faulted in lose nothing") {
    const SuperblockShape shape = {
        .handle_bytes = 4096,
        .superblock_bytes = 3 << 20,
        .superblocks = 3,
        .plane_bytes = {{std::size_t{3} << 19, std::size_t{3} << 19}, {std::size_t{3} << 20}}};
    const auto just_do = [](const auto& action) { action(); };
    for (const MapMode mode : {MapMode::flip, MapMode::remap}) {
      SuperblockMap map(host(shape), shape, {.mode = mode});
      Owners owners(map, shape);
      shuffle(owners, shape, 60, 5, [&](const auto& action) {
        just_do(action);
        for (int b = 0; b < shape.superblocks; ++b) {
          if (map.owner(SuperblockId{b}) != no_view) map.prefault(SuperblockId{b});
        }
      });
      for (int b = 0; b < shape.superblocks; ++b) map.give_back(SuperblockId{b});
      CHECK(map.bytes_backed() == 0);
      CHECK_THROWS_AS(map.prefault(SuperblockId{0}), Error);
    }
  }

  TEST_CASE("a new owner finds poison where the options say so") {
    const NamedShape granite = granite_shape();
    SuperblockMap map(host(granite.shape), granite.shape, {.mode = MapMode::flip, .poison = true});
    map.own(SuperblockId{2}, ViewId{1});
    std::byte* const slot = pieces(map, granite.shape, 2, 1)[0].first;
    CHECK(std::all_of(slot, slot + granite.shape.superblock_bytes,
                      [](std::byte byte) { return byte == std::byte{0xff}; }));
    slot[5] = std::byte{1};
    map.own(SuperblockId{2}, ViewId{1});  // no new owner
    CHECK(slot[5] == std::byte{1});
    CHECK(pieces(map, granite.shape, 1, 1)[0].first[0] == std::byte{0});
  }

  TEST_CASE("whatever call is refused, owners keep their bytes and nothing leaks") {
    const NamedShape named =
        shape_of("two groups", {pages_of(2, 64), pages_of(3, 64), units_of(12000)});
    for (const SuperblockMapOptions& options :
         {SuperblockMapOptions{.mode = MapMode::flip},
          SuperblockMapOptions{.mode = MapMode::flip, .strict = true},
          SuperblockMapOptions{.mode = MapMode::remap}}) {
      int refused = 0;
      int constructed = 0;
      bool reached_the_end = false;
      for (int n = 1; !reached_the_end; ++n) {
        FakeDriver driver;
        driver.refuse_call(n);
        try {
          SuperblockMap map(fake_cuda(named.shape), named.shape, options);
          ++constructed;
          Owners owners(map, named.shape);
          shuffle(owners, named.shape, 12, 9, [&](const auto& action) {
            try {
              action();
            } catch (const Error& error) {
              ++refused;
              CHECK(error.kind() == ErrorKind::memory);
              CHECK(contains(error.what(), "bytes"));
              CHECK(owners.hold());
              action();
            }
          });
          reached_the_end = driver.calls() < n;
          driver.refuse_call(0);
        } catch (const Error& error) {
          CHECK(error.kind() == ErrorKind::memory);
        }
        CHECK(driver.broken_rules().empty());
        CHECK(driver.is_clean());
      }
      CHECK(refused > 50);
      CHECK(constructed == refused + 1);
    }
  }

  TEST_CASE("more mappings than the system has are refused before anything is taken") {
    NamedShape many = granite_shape(1 << 20);
    const std::string text = error_text([&] { SuperblockMap(host(many.shape), many.shape, {}); });
    CHECK(contains(text, "vm.max_map_count"));
    CHECK(contains(text, "4194305 mappings"));
    CHECK(contains(text, "--memory"));
  }

  TEST_CASE("views of one plane take one mapping each, however many superblocks there are") {
    const NamedShape slots = shape_of("slots alone", {units_of(4096), units_of(1024)}, 100000);
    SuperblockMap map(host(slots.shape), slots.shape, {});
    map.own(SuperblockId{99999}, ViewId{1});
    *pieces(map, slots.shape, 99999, 1)[0].first = std::byte{3};
    CHECK(*pieces(map, slots.shape, 99999, 0)[0].first == std::byte{3});
  }

  TEST_CASE("owners that cannot be are our own bugs") {
    const NamedShape granite = granite_shape();
    SuperblockMap map(host(granite.shape), granite.shape, {.mode = MapMode::flat});
    map.own(SuperblockId{0}, ViewId{1});
    map.own(SuperblockId{0}, ViewId{1});
    CHECK_THROWS_AS(map.own(SuperblockId{0}, ViewId{0}), Error);
    CHECK_THROWS_AS(map.own(SuperblockId{3}, ViewId{0}), Error);
    CHECK_THROWS_AS(map.own(SuperblockId{-1}, ViewId{0}), Error);
    CHECK_THROWS_AS(map.own(SuperblockId{1}, ViewId{2}), Error);
    CHECK_THROWS_AS(map.own(SuperblockId{1}, no_view), Error);
    CHECK_THROWS_AS(map.give_back(SuperblockId{7}), Error);
    CHECK_THROWS_AS(SuperblockMap(without_aliases(granite.shape), granite.shape, {}), Error);
    SuperblockShape wrong = granite.shape;
    wrong.superblock_bytes /= 2;
    CHECK_THROWS_AS(SuperblockMap(host(wrong), wrong, {}), Error);
  }
}

}  // namespace superblock_map_test
