#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/arena/cuda_arena.h"
#include "kernels/arena/superblock_map.h"
#include "tests/kernels/arena/arena_laws.h"
#include "tests/kernels/arena/fake_driver.h"
#include "tests/support/error_text.h"

namespace cuda_arena_test {

using namespace hyb;
using namespace hyb::kernels;
using hyb::testing::contains;
using hyb::testing::error_text;

TEST_SUITE("kernels/arena/driver_table") {
  TEST_CASE("what is missing is named") {
    const std::string none = error_text([] { load_driver("libno-such-driver.so.1"); });
    CHECK(contains(none, "libno-such-driver.so.1"));
    CHECK(contains(none, "--device cpu"));
    const std::string other = error_text([] { load_driver("libm.so.6"); });
    CHECK(contains(other, "libm.so.6 has no cuGetErrorName"));
  }
}

using namespace hyb::kernels::testing;

namespace {

constexpr std::size_t shared_bytes = 4096;

/// Arenas of one driver that share memory at random, and a plain account of what each byte is.
class SharingWorld {
 public:
  explicit SharingWorld(unsigned seed) : random_(seed) {
    for (Side& side : sides_) {
      side.arena.emplace(FakeDriver::table(), 0, shared_bytes);
      for (Slot& slot : side.slots) slot.at = side.arena->reserve(shared_bytes);
    }
  }

  void step() {
    Side& side = sides_[below(sides_.size())];
    Slot& slot = side.slots[below(side.slots.size())];
    switch (below(6)) {
      case 0:
        if (side.held.size() < 8) side.held.push_back({side.arena->create(), add_memory()});
        break;
      case 1:
        return import_into(side);
      case 2:
        return map(side, slot);
      case 3:
        return unmap(side, slot);
      case 4:
        return release(side);
      default:
        if (slot.held) write(slot);
    }
  }

  /// Every mapping shows the bytes of its memory, and the driver holds what has a handle.
  void check() const {
    std::vector<bool> lives(values_.size());
    for (const Side& side : sides_) {
      for (const Held& held : side.held) lives[held.memory] = true;
      for (const Slot& slot : side.slots) {
        if (!slot.held) continue;
        const std::byte value = values_[slot.held->memory];
        CHECK(slot.at[0] == value);
        CHECK(slot.at[shared_bytes - 1] == value);
      }
      CHECK(side.arena->handles_held() == side.held.size());
    }
    const auto count = static_cast<std::size_t>(std::count(lives.begin(), lives.end(), true));
    CHECK(driver_.bytes_held(0) == count * shared_bytes);
  }

  void end() {
    for (Side& side : sides_) {
      for (Slot& slot : side.slots) unmap(side, slot);
      while (!side.held.empty()) release(side);
      for (const Slot& slot : side.slots) side.arena->unreserve(slot.at, shared_bytes);
    }
    CHECK(driver_.broken_rules().empty());
    CHECK(driver_.is_clean());
    CHECK(driver_.bytes_held(0) == 0);
  }

  int imports() const { return imports_; }

 private:
  struct Held {
    HandleId handle;
    std::size_t memory;
  };
  struct Slot {
    std::byte* at = nullptr;
    std::optional<Held> held;
  };
  struct Side {
    std::optional<CudaArena> arena;
    std::vector<Held> held;
    std::array<Slot, 4> slots;
  };

  std::size_t below(std::size_t end) { return random_() % end; }
  std::size_t add_memory() {
    values_.push_back(std::byte{0});
    return values_.size() - 1;
  }
  void write(const Slot& slot) {
    const auto value = static_cast<std::byte>(below(256));
    std::fill_n(slot.at, shared_bytes, value);
    values_[slot.held->memory] = value;
  }
  void import_into(Side& side) {
    const Side& from = sides_[below(sides_.size())];
    if (from.held.empty() || side.held.size() >= 8) return;
    const Held held = from.held[below(from.held.size())];
    const ExportedHandle exported = from.arena->export_handle(held.handle);
    side.held.push_back({side.arena->import_handle(exported), held.memory});
    close(exported.fd);
    ++imports_;
  }
  void map(Side& side, Slot& slot) {
    if (slot.held || side.held.empty()) return;
    slot.held = side.held[below(side.held.size())];
    side.arena->map(slot.at, {&slot.held->handle, 1});
  }
  static void unmap(Side& side, Slot& slot) {
    if (!slot.held) return;
    side.arena->unmap(slot.at, {&slot.held->handle, 1});
    slot.held.reset();
  }
  void release(Side& side) {
    if (side.held.empty()) return;
    const auto chosen = side.held.begin() + static_cast<std::ptrdiff_t>(below(side.held.size()));
    const bool is_mapped = std::any_of(side.slots.begin(), side.slots.end(), [&](const Slot& slot) {
      return slot.held && slot.held->handle == chosen->handle;
    });
    if (is_mapped) return;
    side.arena->release(chosen->handle);
    side.held.erase(chosen);
  }

  FakeDriver driver_;
  std::mt19937 random_;
  std::array<Side, 3> sides_;
  std::vector<std::byte> values_;  // by memory
  int imports_ = 0;
};

}  // namespace

TEST_SUITE("kernels/arena/cuda_arena") {
  TEST_CASE("arenas that share handles show the same bytes, until the last one lets go of them") {
    int imports = 0;
    for (unsigned seed = 1; seed <= 40; ++seed) {
      CAPTURE(seed);
      SharingWorld world(seed);
      for (int i = 0; i < 300; ++i) {
        world.step();
        world.check();
      }
      imports += world.imports();
      world.end();
    }
    CHECK(imports > 500);
  }

  TEST_CASE("what cannot be imported is named, and nothing changes") {
    FakeDriver driver;
    CudaArena small(FakeDriver::table(), 0, 4096), large(FakeDriver::table(), 0, 8192);
    const HandleId handle = small.create();
    const ExportedHandle exported = small.export_handle(handle);
    const std::string text = error_text([&] { large.import_handle(exported); });
    CHECK(contains(text, "4096"));
    CHECK(contains(text, "8192"));
    const ExportedHandle later = {.fd = exported.fd, .offset = 4096, .bytes = 4096};
    CHECK_THROWS_AS(small.import_handle(later), Error);
    CHECK(large.handles_held() == 0);

    driver.refuse_call(1);
    CHECK(contains(error_text([&] { small.import_handle(exported); }),
                   "cuMemImportFromShareableHandle of 4096 bytes was refused"));
    CHECK(small.handles_held() == 1);
    small.release(small.import_handle(exported));
    CHECK(driver.broken_rules().empty());

    const ExportedHandle other = {.fd = STDIN_FILENO, .offset = 0, .bytes = 4096};
    CHECK_THROWS_AS(small.import_handle(other), Error);
    CHECK(driver.broken_rules().size() == 1);
    close(exported.fd);
    small.release(handle);
    CHECK(driver.is_clean());
  }

  TEST_CASE("what is mapped can be touched by the device and its peers, and by no other") {
    FakeDriver driver;
    driver.set_devices(4);
    for (const std::vector<int>& peers : {std::vector<int>{}, std::vector<int>{2, 0}}) {
      CudaArena arena(FakeDriver::table(), 1, 4096, peers);
      const std::array handles = {arena.create(), arena.create()};
      std::byte* const at = arena.reserve(3 * 4096);
      arena.map(at, handles);
      for (int device = 0; device < 4; ++device) {
        const bool is_peer = std::count(peers.begin(), peers.end(), device) > 0;
        CHECK(driver.is_accessible(at, 2 * 4096, device) == (device == 1 || is_peer));
        CHECK(!driver.is_accessible(at, 3 * 4096, device));
      }
      CHECK(driver.bytes_held(1) == 2 * 4096);
      CHECK(driver.bytes_held(2) == 0);
      arena.unmap(at, handles);
      for (const HandleId handle : handles) arena.release(handle);
      arena.unreserve(at, 3 * 4096);
    }
    CHECK(driver.broken_rules().empty());
    CHECK(driver.is_clean());
  }

  TEST_CASE("a driver that gives peers no access says so at the first mapping") {
    FakeDriver driver;
    driver.set_devices(3, false);
    CudaArena arena(FakeDriver::table(), 0, 4096, {1, 2});
    const HandleId handle = arena.create();
    std::byte* const at = arena.reserve(4096);
    const std::string text = error_text([&] { arena.map(at, {&handle, 1}); });
    CHECK(contains(text, "no memory of device 0 for device 1, 2"));
    CHECK(driver.mappings() == 0);
    arena.release(handle);
    arena.unreserve(at, 4096);
    CHECK(driver.broken_rules().empty());
    CHECK(driver.is_clean());
  }

  TEST_CASE("the laws of an arena, and the rules of the driver") {
    FakeDriver driver;
    {
      CudaArena arena(FakeDriver::table(), 0, 16384);
      check_arena_laws(arena);
    }
    CHECK(driver.broken_rules().empty());
    CHECK(driver.is_clean());
  }

  TEST_CASE("a driver without handles for other processes has memory all the same") {
    const FakeDriver driver(4096, false);
    CudaArena arena(FakeDriver::table(), 0, 4096);
    const std::array handles = {arena.create(), arena.create()};
    CHECK(driver.calls() == 4);  // the granularity, a refused one, two
    CHECK(contains(error_text([&] { arena.export_handle(handles[0]); }), "between processes"));
    for (const HandleId handle : handles) arena.release(handle);
    CHECK(driver.broken_rules().empty());
    CHECK(driver.is_clean());
  }

  TEST_CASE("handles are multiples of what the driver gives") {
    const FakeDriver driver(65536);
    const std::string text =
        error_text([] { const CudaArena arena(FakeDriver::table(), 0, 98304); });
    CHECK(contains(text, "65536"));
    CHECK(contains(text, "98304"));
    CHECK_THROWS_AS(CudaArena(FakeDriver::table(), 0, 0), Error);
  }

  TEST_CASE("whatever call is refused, nothing leaks and the arena still works") {
    constexpr std::size_t bytes = 4096;
    int refused = 0;
    for (int n = 1; n < 40; ++n) {
      FakeDriver driver;
      CudaArena arena(FakeDriver::table(), 0, bytes);
      // Every action is tried until it succeeds, as its caller would.
      const auto insist = [&](const auto& action) {
        try {
          action();
        } catch (const Error& error) {
          ++refused;
          CHECK(error.kind() == ErrorKind::memory);
          CHECK(contains(error.what(), "CUDA_ERROR_OUT_OF_MEMORY"));
          CHECK(contains(error.what(), "bytes"));
          action();
        }
      };
      driver.refuse_call(n);
      std::byte* at = nullptr;
      insist([&] { at = arena.reserve(3 * bytes); });
      std::array<HandleId, 3> handles{};
      for (HandleId& handle : handles) insist([&] { handle = arena.create(); });
      CHECK(arena.handles_held() == 3);
      CHECK(driver.handles() == 3);
      insist([&] { arena.map(at, handles); });
      CHECK(driver.mappings() == 3);
      insist([&] { arena.fill(at, 3 * bytes, std::byte{5}); });
      CHECK(at[3 * bytes - 1] == std::byte{5});
      for (std::size_t i = 0; i < 3; ++i) {
        insist([&] { arena.unmap(at + i * bytes, {&handles[i], 1}); });
        insist([&] { arena.release(handles[i]); });
      }
      insist([&] { arena.unreserve(at, 3 * bytes); });
      CHECK(driver.broken_rules().empty());
      CHECK(driver.is_clean());
      CHECK(arena.handles_held() == 0);
    }
    // reserve, 3 create, 3 map, access, fill and its wait, 3 unmap, 3 release, free
    CHECK(refused == 17);
  }

  TEST_CASE(
      "memory is created before an owner needs it, or the device has none and nothing changed") {
    const NamedShape granite = granite_shape();
    for (const SuperblockMapOptions& options : {SuperblockMapOptions{.mode = MapMode::flip},
                                                SuperblockMapOptions{.mode = MapMode::remap}}) {
      int refused = 0;
      for (int n = 1; n < 40; ++n) {
        FakeDriver driver;
        {
          SuperblockMap map(std::make_unique<CudaArena>(FakeDriver::table(), 0,
                                                        SuperblockMap::handle_bytes(granite.shape)),
                            granite.shape, options);
          for (int b = 0; b < 3; ++b) map.own(SuperblockId{b}, ViewId{0});
          map.give_back(SuperblockId{1});
          CHECK(map.commit(SuperblockId{0}, false));
          CHECK(!map.commit(SuperblockId{1}, false));
          const std::size_t bytes = map.bytes_backed();
          driver.refuse_call(n);
          if (!map.commit(SuperblockId{1}, true)) {
            ++refused;
            CHECK(map.bytes_backed() == bytes);
            CHECK(map.owner(SuperblockId{1}) == no_view);
            CHECK(!map.commit(SuperblockId{1}, false));
            CHECK(map.commit(SuperblockId{1}, true));
          }
          driver.refuse_call(0);
          const int calls = driver.calls();
          CHECK(map.commit(SuperblockId{1}, true));
          CHECK(driver.calls() == calls);
          map.own(SuperblockId{1}, ViewId{1});
          if (options.mode == MapMode::flip) CHECK(driver.calls() == calls);
        }
        CHECK(driver.broken_rules().empty());
        CHECK(driver.is_clean());
      }
      CHECK(refused >= 4);
    }
  }
}

}  // namespace cuda_arena_test
