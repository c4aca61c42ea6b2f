#include "kernels/arena/prefaulter.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <thread>

namespace prefaulter_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

std::byte* address(std::size_t offset) { return reinterpret_cast<std::byte*>(huge_page + offset); }

/// Records what is faulted in; while it is closed, that waits.
class Recorder final : public Arena {
 public:
  Recorder() : Arena(4096) {}

  std::byte* reserve(std::size_t) override { return nullptr; }
  void unreserve(std::byte*, std::size_t) override {}
  HandleId create() override { return HandleId{0}; }
  void release(HandleId) override {}
  void map(std::byte*, std::span<const HandleId>) override {}
  void unmap(std::byte*, std::span<const HandleId>) override {}
  void fill(std::byte*, std::size_t, std::byte) override {}
  std::size_t mappings_max() const override { return 0; }
  std::size_t handles_held() const override { return 0; }

  bool populate(std::byte* at, std::size_t bytes) const override {
    ++begun;
    while (is_closed) std::this_thread::sleep_for(1ms);
    CHECK(reinterpret_cast<std::uintptr_t>(at) / huge_page ==
          (reinterpret_cast<std::uintptr_t>(at) + bytes - 1) / huge_page);
    all_bytes += bytes;
    return works;
  }

  void wait_for_begun(int pieces) const {
    while (begun < pieces) std::this_thread::sleep_for(1ms);
  }

  std::atomic<bool> is_closed = false, works = true;
  mutable std::atomic<int> begun = 0;
  mutable std::atomic<std::size_t> all_bytes = 0;
};

}  // namespace

TEST_SUITE("kernels/arena/prefaulter") {
  TEST_CASE("everything is faulted in, in pieces that a huge page contains") {
    const Recorder arena;
    Prefaulter prefaulter(arena);
    prefaulter.wait();
    prefaulter.add(SuperblockId{1}, {address(12288), 3 * huge_page});
    prefaulter.add(SuperblockId{1}, {address(0), 0});
    prefaulter.add(SuperblockId{2}, {address(0), 4096});
    prefaulter.wait();
    CHECK(arena.all_bytes == 3 * huge_page + 4096);
    CHECK(arena.begun == 4 + 1);
  }

  TEST_CASE("a superblock is cancelled when the piece in work is done, others go on") {
    Recorder arena;
    Prefaulter prefaulter(arena);
    arena.is_closed = true;
    prefaulter.add(SuperblockId{1}, {address(0), 5 * huge_page});
    prefaulter.add(SuperblockId{2}, {address(0), 2 * huge_page});
    arena.wait_for_begun(1);
    auto cancelled = std::async(std::launch::async, [&] { prefaulter.cancel(SuperblockId{1}); });
    CHECK(cancelled.wait_for(20ms) == std::future_status::timeout);
    prefaulter.cancel(SuperblockId{3});  // waits for nothing
    arena.is_closed = false;
    cancelled.get();
    prefaulter.wait();
    CHECK(arena.all_bytes == 3 * huge_page);
  }

  TEST_CASE("it stops with work left") {
    Recorder arena;
    {
      Prefaulter prefaulter(arena);
      prefaulter.stop();
      prefaulter.add(SuperblockId{1}, {address(0), huge_page});
      prefaulter.wait();
    }
    CHECK(arena.begun == 0);
    Prefaulter prefaulter(arena);
    arena.is_closed = true;
    prefaulter.add(SuperblockId{1}, {address(0), 100 * huge_page});
    arena.wait_for_begun(1);
    std::promise<void> stopping;
    auto stopped = std::async(std::launch::async, [&] {
      stopping.set_value();
      prefaulter.stop();
    });
    stopping.get_future().wait();
    CHECK(stopped.wait_for(20ms) == std::future_status::timeout);
    arena.is_closed = false;
    stopped.get();
    CHECK(arena.all_bytes <= 2 * huge_page);
    prefaulter.wait();
  }

  TEST_CASE("where memory cannot be faulted in, one attempt is enough") {
    Recorder arena;
    arena.works = false;
    Prefaulter prefaulter(arena);
    for (int i = 0; i < 3; ++i) {
      prefaulter.add(SuperblockId{i}, {address(0), 10 * huge_page});
      prefaulter.wait();
    }
    CHECK(arena.begun == 1);
  }
}

}  // namespace prefaulter_test
