#include "core/io/transfer_queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "core/io/file.h"
#include "tests/support/error_text.h"
#include "tests/support/shim_storage.h"

namespace transfer_queue_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> made(bytes);
  for (std::byte& byte : made) byte = static_cast<std::byte>(random());
  return made;
}

void write(TransferQueue& queue, Extent extent, std::span<const std::byte> bytes) {
  queue.write(std::span(&extent, 1), bytes.size(), [&](std::span<std::byte> buffer) {
    std::copy(bytes.begin(), bytes.end(), buffer.begin());
  });
}

TransferId read(TransferQueue& queue, Extent extent, std::span<const std::byte> wanted) {
  return queue.read(std::span(&extent, 1), wanted.size());
}

/// Blocks until it is released.
class GatedStorage final : public Storage {
 public:
  explicit GatedStorage(std::atomic<bool>& open) : open_(&open) {}
  void write(std::uint64_t, std::span<const std::byte>) override { pass(); }
  void read(std::uint64_t, std::span<std::byte>) override { pass(); }

 private:
  void pass() const {
    while (!*open_) std::this_thread::yield();
  }
  std::atomic<bool>* open_;
};

}  // namespace

TEST_SUITE("core/io/transfer_queue") {
  TEST_CASE("a read sees earlier writes and no later ones") {
    for (const TransferWorker worker : {TransferWorker::thread, TransferWorker::caller}) {
      ShimDisk disk;
      TransferQueue queue(std::make_unique<ShimStorage>(disk), 5 * sector_bytes, worker);
      std::mt19937 random(7);
      std::map<std::uint32_t, std::vector<std::byte>> there;
      std::map<TransferId, std::vector<std::byte>> asked;
      for (unsigned i = 0; i < 2000; ++i) {
        const Extent extent{.first = static_cast<std::uint32_t>(random() % 6) * 3, .count = 3};
        const std::size_t bytes = 1 + random() % (3 * sector_bytes);
        if (random() % 2 == 0) {
          there[extent.first] = pattern(bytes, i);
          write(queue, extent, there[extent.first]);
        } else if (there.contains(extent.first) && queue.can_read(there[extent.first].size())) {
          const auto& wanted = there[extent.first];
          asked.emplace(read(queue, extent, wanted), wanted);
        }
        if (worker == TransferWorker::caller) queue.run(random() % 3);
        if (asked.empty() || random() % 3 != 0) continue;
        const auto oldest = asked.begin();
        if (random() % 4 != 0) {
          queue.wait_for(oldest->first);
          REQUIRE(queue.outcome(oldest->first) == true);
          const auto bytes_come = queue.bytes(oldest->first);
          REQUIRE(std::equal(bytes_come.begin(), bytes_come.end(), oldest->second.begin(),
                             oldest->second.end()));
        }
        queue.release(oldest->first);
        asked.erase(oldest);
        REQUIRE(queue.bytes_held() <= 10 * sector_bytes);
      }
      queue.drain();
      CHECK(!queue.is_busy());
      CHECK(queue.failure().empty());
    }
  }

  TEST_CASE("a wrong checksum is detected") {
    ShimDisk disk{.damages_at = 1};
    TransferQueue queue(std::make_unique<ShimStorage>(disk), 1 << 20, TransferWorker::thread);
    const auto bytes = pattern(5000, 1);
    write(queue, {0, 2}, bytes);
    for (const bool whole : {true, false}) {
      const TransferId id = read(queue, {0, 2}, bytes);
      queue.wait_for(id);
      CHECK(queue.outcome(id) == whole);
      queue.release(id);
    }
  }

  TEST_CASE("no transfer runs after the first failure") {
    for (const TransferWorker worker : {TransferWorker::thread, TransferWorker::caller}) {
      ShimDisk disk{.fails_at = 3};
      TransferQueue queue(std::make_unique<ShimStorage>(disk), 1 << 20, worker);
      const auto bytes = pattern(100, 1);
      for (std::uint32_t i = 0; i < 3; ++i) write(queue, {i, 1}, bytes);
      const TransferId failing = read(queue, {0, 1}, bytes);
      const TransferId behind = read(queue, {1, 1}, bytes);
      queue.wait_for(behind);
      CHECK(queue.outcome(failing) == false);
      CHECK(queue.outcome(behind) == false);
      CHECK(contains(queue.failure(), "as planned"));
      write(queue, {4, 1}, bytes);
      const TransferId late = read(queue, {4, 1}, bytes);
      CHECK(queue.outcome(late) == false);
      queue.drain();
      CHECK(disk.calls == 4);
      for (const TransferId id : {failing, behind, late}) queue.release(id);
      CHECK(!queue.is_busy());
    }
  }

  TEST_CASE("reads do not exceed the limit, and a single larger one is admitted alone") {
    ShimDisk disk;
    TransferQueue queue(std::make_unique<ShimStorage>(disk), 1000, TransferWorker::caller);
    const auto bytes = pattern(3000, 1);
    write(queue, {0, 1}, bytes);
    CHECK(queue.is_busy());
    write(queue, {1, 1}, std::span(bytes).first(10));  // waits for the large one
    CHECK(disk.calls == 1);
    CHECK(queue.can_read(3000));
    const TransferId large = read(queue, {0, 1}, bytes);
    CHECK(!queue.can_read(1));
    queue.release(large);
    CHECK(queue.can_read(600));
    const TransferId one = read(queue, {0, 1}, std::span(bytes).first(600));
    CHECK(queue.can_read(400));
    CHECK(!queue.can_read(401));
    queue.release(one);
  }

  TEST_CASE("destruction with pending transfers: those that have not started never run") {
    std::atomic<bool> open = false;
    ShimDisk disk;
    const auto bytes = pattern(100, 1);
    {
      TransferQueue queue(std::make_unique<GatedStorage>(open), 1 << 20, TransferWorker::thread);
      for (std::uint32_t i = 0; i < 50; ++i) write(queue, {i, 1}, bytes);
      const TransferId id = read(queue, {0, 1}, bytes);
      CHECK(!queue.outcome(id));
      queue.release(id);  // before it began
      open = true;
    }
    {
      TransferQueue queue(std::make_unique<ShimStorage>(disk), 1 << 20, TransferWorker::caller);
      write(queue, {0, 1}, bytes);
    }
    CHECK(disk.calls == 0);
  }
}

}  // namespace transfer_queue_test
