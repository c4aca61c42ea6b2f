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

TEST_SUITE("kernels/arena/cuda_arena") {
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
