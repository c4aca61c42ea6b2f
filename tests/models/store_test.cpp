#include "models/store.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "kernels/ops/pack_snapshot.h"
#include "tests/kernels/arena/arena_laws.h"

namespace store_test {

using namespace hyb;
using namespace hyb::models;
using kernels::MapMode;
using kernels::SuperblockMapOptions;
using kernels::Tensor;
using kernels::testing::read_faults;

namespace {

PageLayout page_of(const Geometry& geometry, std::int32_t heads, Reach reach) {
  const std::int64_t elements = std::int64_t{2} * heads * 16;
  return {.layer = 0,
          .block = 0,
          .part = 0,
          .kv_heads = heads,
          .head_dim = 16,
          .elements_per_token = elements,
          .page_bytes = static_cast<std::size_t>(elements) * 2 *
                        static_cast<std::size_t>(geometry.page_tokens),
          .reach = reach};
}

/// Three full layers of two widths, two window layers between them, two recurrent layers.
Geometry small_geometry() {
  Geometry geometry{};
  geometry.page_tokens = 16;
  geometry.kv_dtype = DType::bf16;
  geometry.load.activation = DType::bf16;
  geometry.state_dtype = DType::f32;
  const Reach window = {.kind = Reach::Kind::window, .tokens = 32};
  geometry.pages = {page_of(geometry, 1, {}), page_of(geometry, 1, window),
                    page_of(geometry, 2, {}), page_of(geometry, 1, window),
                    page_of(geometry, 1, {})};
  for (const PageLayout& page : geometry.pages) geometry.page_bytes += page.page_bytes;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t begin = geometry.slot_bytes;
    geometry.pieces.push_back({.layer = 0,
                               .block = 0,
                               .part = 0,
                               .conv_channels = 48,
                               .conv_width = 4,
                               .heads = 4,
                               .rows = 16,
                               .columns = 24,
                               .conv_offset = begin,
                               .conv_bytes = 48 * 3 * 2,
                               .state_offset = begin + 320,
                               .state_bytes = 4 * 16 * 24 * 4,
                               .ring_width = 0});
    geometry.slot_bytes = begin + 320 + 4 * 16 * 24 * 4;
  }
  return geometry;
}

struct Bench {
  explicit Bench(const SuperblockMapOptions& options)
      : queue(kernels::Device::cpu, {.threads = 2, .isa = {}}),
        memory(memory_layout_of(geometry, {.pool_bytes = 3 << 20, .packed = true, .flat = {}})),
        store(queue, geometry, memory, options) {}

  const MemoryLayout& layout() const { return memory.layout; }

  void order(const Order& order) { store.carry_out(std::vector{order}); }
  void own(std::int32_t superblock, ViewId view) {
    order(ChangeOwner{SuperblockId{superblock}, no_view, view});
  }

  std::vector<std::byte> read(ViewId view, std::int32_t unit) const {
    std::vector<std::byte> bytes(layout().unit_bytes(view));
    store.read(view, unit, bytes);
    return bytes;
  }

  Geometry geometry = small_geometry();
  kernels::Queue queue;
  ModelMemoryLayout memory;
  Store store;
};

using Unit = std::pair<std::int32_t, std::int32_t>;  // view, number

/// What every unit of the views that own their superblocks has to hold.
class Oracle {
 public:
  Oracle(Bench& bench, std::uint32_t seed) : bench_(bench), random_(seed) {
    owners_.resize(static_cast<std::size_t>(layout().superblocks), -1);
  }

  void step() {
    const auto action = random_() % 10;
    if (action < 3) {
      change_owner();
    } else if (action < 6) {
      write();
    } else {
      transfer();
    }
  }

  bool holds() const {
    return std::all_of(bytes_.begin(), bytes_.end(), [&](const auto& entry) {
      return bench_.read(ViewId{entry.first.first}, entry.first.second) == entry.second;
    });
  }
  std::size_t transfers() const { return transfers_; }

 private:
  const MemoryLayout& layout() const { return bench_.layout(); }
  std::int32_t units(std::int32_t view) const {
    return layout().units_per_superblock(ViewId{view});
  }

  void change_owner() {
    const auto superblock = static_cast<std::int32_t>(random_() % owners_.size());
    // All but the last one, of rings, which this model has none of; or none.
    const auto view =
        static_cast<std::int32_t>(random_() % static_cast<unsigned>(layout().views())) - 1;
    std::int32_t& owner = owners_[static_cast<std::size_t>(superblock)];
    bench_.order(ChangeOwner{SuperblockId{superblock}, ViewId{owner}, ViewId{view}});
    if (view == owner) return;
    owner = view;
    std::erase_if(bytes_, [&](const auto& entry) {
      return entry.first.second / units(entry.first.first) == superblock;
    });
  }

  std::int32_t random_unit(std::int32_t superblock) {
    const std::int32_t view = owners_[static_cast<std::size_t>(superblock)];
    return superblock * units(view) +
           static_cast<std::int32_t>(random_() % static_cast<unsigned>(units(view)));
  }

  void write() {
    const auto superblock = static_cast<std::int32_t>(random_() % owners_.size());
    const std::int32_t view = owners_[static_cast<std::size_t>(superblock)];
    if (view < 0) return;
    const std::int32_t unit = random_unit(superblock);
    std::vector<std::byte> bytes(layout().unit_bytes(ViewId{view}));
    // Small numbers in every format, so that states can be packed.
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_() % 64);
    bench_.store.write(ViewId{view}, unit, bytes);
    bytes_[{view, unit}] = bench_.read(ViewId{view}, unit);
    const std::size_t worth = worth_of(view);
    CHECK(std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(worth),
                     bytes_[{view, unit}].begin()));
  }

  std::size_t worth_of(std::int32_t view) const {
    if (ViewId{view} == layout().slot_view()) return bench_.geometry.slot_bytes;
    if (ViewId{view} == layout().packed_view()) return bench_.memory.snapshot.bytes;
    return layout().unit_bytes(ViewId{view});
  }

  /// A copy within a view, or packing and unpacking between two.
  void transfer() {
    if (bytes_.empty()) return;
    const auto from =
        std::next(bytes_.begin(), static_cast<std::ptrdiff_t>(random_() % bytes_.size()));
    const auto superblock = static_cast<std::int32_t>(random_() % owners_.size());
    const std::int32_t to_view = owners_[static_cast<std::size_t>(superblock)];
    if (to_view < 0) return;
    const auto [view, unit] = from->first;
    const std::int32_t to = random_unit(superblock);
    const std::int32_t slots = index(layout().slot_view());
    const std::int32_t packed = index(layout().packed_view());
    if (view == to_view) {
      bench_.order(UnitCopy{ViewId{view}, unit, to});
      bytes_[{to_view, to}] = from->second;
    } else if (view == slots && to_view == packed) {
      bench_.order(PackSlot{SlotId{unit}, PackedId{to}});
      bytes_[{to_view, to}] = packed_from(from->second, to);
    } else if (view == packed && to_view == slots) {
      bench_.order(UnpackSlot{PackedId{unit}, SlotId{to}});
      bytes_[{to_view, to}] = bench_.read(ViewId{to_view}, to);
    } else {
      return;
    }
    ++transfers_;
  }

  /// By the op itself on bytes elsewhere; what it leaves alone is as in the store.
  std::vector<std::byte> packed_from(std::vector<std::byte> slot, std::int32_t to) {
    std::vector<std::byte> packed = bench_.read(layout().packed_view(), to);
    const auto tensor = [](std::vector<std::byte>& bytes) {
      return Tensor(bytes.data(), DType::u8, {static_cast<std::int64_t>(bytes.size())});
    };
    kernels::pack_snapshot(bench_.queue, {.pieces = bench_.memory.snapshot.pieces,
                                          .state_dtype = DType::f32,
                                          .slot = tensor(slot),
                                          .packed = tensor(packed)});
    return packed;
  }

  Bench& bench_;
  std::mt19937 random_;
  std::vector<std::int32_t> owners_;
  std::map<Unit, std::vector<std::byte>> bytes_;
  std::size_t transfers_ = 0;
};

const SuperblockMapOptions every_mapping[] = {
    {.mode = MapMode::flip},
    {.mode = MapMode::flip, .strict = true, .poison = true},
    {.mode = MapMode::remap, .poison = true},
};

}  // namespace

TEST_SUITE("models/store") {
  TEST_CASE("units keep their bytes through changes of owner, copies and packing") {
    for (const SuperblockMapOptions& options : every_mapping) {
      Bench bench(options);
      REQUIRE(bench.layout().views() == 5);
      REQUIRE(bench.layout().superblocks >= 4);
      Oracle oracle(bench, 17);
      for (int i = 0; i < 1500; ++i) {
        oracle.step();
        if (i % 50 == 0) CHECK(oracle.holds());
      }
      CHECK(oracle.holds());
      CHECK(oracle.transfers() > 50);
    }
  }

  TEST_CASE("a page is the same row of every layer's arena of its group") {
    Bench bench({});
    CHECK(bench.store.group(0) == 0);
    CHECK(bench.store.group(1) == 1);
    CHECK(bench.store.group(4) == 0);
    bench.own(1, ViewId{0});
    const std::int32_t page = bench.layout().groups[0].pages_per_superblock + 2;
    for (const std::size_t layer : {0u, 2u, 4u}) {
      const Tensor arena = bench.store.arena(layer);
      CHECK(arena.row_stride == arena.dim(1));
      CHECK(arena.dim(0) ==
            bench.layout().superblocks * bench.layout().groups[0].pages_per_superblock);
      std::memset(arena.row<std::uint16_t>(page), static_cast<int>(layer + 1),
                  bench.geometry.pages[layer].page_bytes);
    }
    const std::vector<std::byte> bytes = bench.read(ViewId{0}, page);
    std::size_t offset = 0;
    for (const std::size_t layer : {0u, 2u, 4u}) {
      CHECK(bytes[offset] == static_cast<std::byte>(layer + 1));
      offset += bench.geometry.pages[layer].page_bytes;
      CHECK(bytes[offset - 1] == static_cast<std::byte>(layer + 1));
    }
    CHECK(offset == bytes.size());
  }

  TEST_CASE("a recurrent layer's part of a slot is where the geometry says") {
    Bench bench({});
    const ViewId view = bench.layout().slot_view();
    bench.own(2, view);
    const std::int32_t slot = 2 * bench.layout().slots.per_superblock;
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const SlotPiece& piece = bench.geometry.pieces[layer];
      std::memset(bench.store.windows(layer).row<std::uint16_t>(slot), 1, piece.conv_bytes);
      std::memset(bench.store.states(layer).row<float>(slot), 2, piece.state_bytes);
    }
    const std::vector<std::byte> bytes = bench.read(view, slot);
    for (const SlotPiece& piece : bench.geometry.pieces) {
      CHECK(bytes[piece.conv_offset + piece.conv_bytes - 1] == std::byte{1});
      CHECK(bytes[piece.state_offset] == std::byte{2});
      CHECK(bytes[piece.state_offset + piece.state_bytes - 1] == std::byte{2});
    }
    CHECK(std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(bench.geometry.slot_bytes),
                      bytes.end(), [](std::byte byte) { return byte == std::byte{0}; }));
  }

  TEST_CASE("a stray access faults where only the owner's view is mapped") {
    Bench bench({.mode = MapMode::flip, .strict = true});
    bench.own(0, ViewId{1});
    const Tensor states = bench.store.states(0);
    const Tensor arena = bench.store.arena(1);
    CHECK_FALSE(read_faults(arena.row<std::byte>(0)));
    CHECK(read_faults(states.row<std::byte>(0)));
    bench.own(0, bench.layout().slot_view());
    CHECK(read_faults(arena.row<std::byte>(0)));
    CHECK_FALSE(read_faults(states.row<std::byte>(0)));
  }

  TEST_CASE("a superblock without an owner holds no memory") {
    Bench bench({});
    const std::size_t all = bench.store.bytes_backed();
    CHECK(all == bench.store.bytes());
    bench.own(1, ViewId{0});
    bench.order(ChangeOwner{SuperblockId{1}, ViewId{0}, no_view});
    CHECK(bench.store.bytes_backed() == all - bench.layout().superblock_bytes);
    const Tensor states = bench.store.states(0);
    CHECK(read_faults(states.row<float>(bench.layout().slots.per_superblock)));
    bench.own(1, bench.layout().slot_view());
    CHECK(bench.store.bytes_backed() == all);

    Bench grown({.mode = MapMode::remap});
    CHECK(grown.store.bytes_backed() == 0);
    grown.own(0, ViewId{0});
    CHECK(grown.store.bytes_backed() > 0);
    CHECK(grown.store.bytes_backed() <= grown.layout().superblock_bytes);
  }

  TEST_CASE("fixed pools have the requested units, each on its own") {
    Geometry geometry = small_geometry();
    kernels::Queue queue(kernels::Device::cpu, {.threads = 1, .isa = {}});
    for (const auto& [pages, slots] : {std::pair{7, 3}, {1, 1}, {130, 65}}) {
      Store store(queue, geometry, flat_memory(geometry, pages, slots));
      const MemoryLayout layout = flat_memory(geometry, pages, slots).layout;
      CHECK(store.bytes() == static_cast<std::size_t>(pages) * geometry.page_bytes +
                                 static_cast<std::size_t>(slots) * geometry.slot_bytes);
      std::vector<std::byte> bytes(geometry.page_bytes);
      for (std::int32_t page = 0; page < pages; ++page) {
        std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(page));
        store.write(ViewId{0}, page, bytes);
      }
      std::vector<std::byte> slot(geometry.slot_bytes);
      const std::int32_t first = layout.first_unit(layout.slot_view());
      for (std::int32_t i = 0; i < slots; ++i) {
        std::fill(slot.begin(), slot.end(), static_cast<std::byte>(100 + i));
        store.write(layout.slot_view(), first + i, slot);
      }
      for (std::int32_t page = 0; page < pages; ++page) {
        store.read(ViewId{0}, page, bytes);
        CHECK(bytes.back() == static_cast<std::byte>(page));
      }
      for (std::int32_t i = 0; i < slots; ++i) {
        store.read(layout.slot_view(), first + i, slot);
        CHECK(slot.front() == static_cast<std::byte>(100 + i));
        CHECK(slot.back() == static_cast<std::byte>(100 + i));
      }
    }
  }

  TEST_CASE("a layout that was cut for another model is our own bug") {
    const Geometry geometry = small_geometry();
    kernels::Queue queue(kernels::Device::cpu, {.threads = 1, .isa = {}});
    const ModelMemoryLayout memory =
        memory_layout_of(geometry, {.pool_bytes = 3 << 20, .flat = {}});
    StoreLayout wrong = memory;
    wrong.layers[0].pop_back();
    CHECK_THROWS_AS(Store(queue, geometry, wrong), Error);
    wrong = memory;
    wrong.layout.groups[0].page_bytes += 64;
    CHECK_THROWS_AS(Store(queue, geometry, wrong), Error);
    wrong = memory;
    wrong.layout.slots.per_superblock += 1;
    CHECK_THROWS_AS(Store(queue, geometry, wrong), Error);
    CHECK_THROWS_AS(Store(queue, geometry, memory, {.mode = MapMode::flat}), Error);
  }
}

}  // namespace store_test
