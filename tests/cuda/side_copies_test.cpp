#include "kernels/side_copies.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/buffer.h"
#include "kernels/transfer.h"

namespace side_copies_test {

using namespace hyb;
using namespace hyb::kernels;

namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t count, std::mt19937& random) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

bool has(PendingBytes& copy, const Bytes& wanted) {
  return std::ranges::equal(copy.wait(), wanted);
}

}  // namespace

TEST_SUITE("cuda/side_copies") {
  TEST_CASE("a copy has what its parts held when it started, whatever the queue does after that") {
    Queue queue(Device::cuda, {.threads = 1, .isa = {}});
    const auto copies = make_side_copies(queue, 1 << 20);
    Buffer source(Device::cuda, 4096), other(Device::cuda, 4096);
    std::mt19937 random(1);
    const Bytes first = random_bytes(4096, random), second = random_bytes(4096, random);
    upload(queue, source.data(), first);
    upload(queue, other.data(), second);
    const std::vector<std::span<const std::byte>> parts = {{source.data() + 100, 50},
                                                           {source.data() + 3000, 1000}};
    const auto copy = copies->start(parts, 1100);
    REQUIRE(copy != nullptr);
    kernels::copy(queue, source.data(), other.data(), 4096);
    wait(queue);
    Bytes wanted(first.begin() + 100, first.begin() + 150);
    wanted.insert(wanted.end(), first.begin() + 3000, first.begin() + 4000);
    wanted.resize(1100);  // the padding is zeros
    CHECK(has(*copy, wanted));
    Bytes now(4096);
    download(queue, now, source.data());
    CHECK(now == second);
  }

  TEST_CASE("room is free again when a copy is gone, and one without room is not started") {
    Queue queue(Device::cuda, {.threads = 1, .isa = {}});
    const auto copies = make_side_copies(queue, 1000);
    Buffer source(Device::cuda, 4096);
    const auto start = [&](std::size_t bytes) {
      const std::span<const std::byte> part(source.data(), bytes);
      return copies->start(std::span(&part, 1), bytes);
    };
    CHECK(start(1001) == nullptr);
    auto one = start(400), two = start(400);
    REQUIRE(one != nullptr);
    REQUIRE(two != nullptr);
    CHECK(start(400) == nullptr);
    one.reset();
    auto three = start(400);  // where the first was
    REQUIRE(three != nullptr);
    CHECK(start(1) == nullptr);
    three.reset();
    CHECK(start(400) == nullptr);  // the room of one that is gone is free with those before it
    two.reset();
    CHECK(start(1000) != nullptr);
    CHECK(make_side_copies(queue, 0) == nullptr);
  }

  TEST_CASE("random schedules with a thread that waits: every copy has the bytes of its start") {
    Queue queue(Device::cuda, {.threads = 1, .isa = {}});
    const auto copies = make_side_copies(queue, 20'000);
    Buffer source(Device::cuda, 8192);
    std::mt19937 random(7);
    Bytes there = random_bytes(8192, random);
    upload(queue, source.data(), there);
    struct Started {
      std::unique_ptr<PendingBytes> copy;
      Bytes wanted;
    };
    std::deque<Started> started;
    int refused = 0, good = 0, all = 0;
    for (int i = 0; i < 400; ++i) {
      if (random() % 2 == 0) {
        const std::size_t begin = random() % 4096, bytes = 1 + random() % 4000;
        const std::span<const std::byte> part(source.data() + begin, bytes);
        if (auto copy = copies->start(std::span(&part, 1), bytes)) {
          const auto from = there.begin() + static_cast<std::ptrdiff_t>(begin);
          started.push_back({std::move(copy), Bytes(from, from + static_cast<long>(bytes))});
        } else {
          ++refused;
        }
      }
      if (random() % 3 == 0) {
        there = random_bytes(8192, random);
        upload(queue, source.data(), there);
      }
      if (started.empty() || random() % 3 != 0) continue;
      Started one = std::move(started.front());
      started.pop_front();
      ++all;
      std::thread([&] {
        if (has(*one.copy, one.wanted)) ++good;
        one.copy.reset();
      }).join();
    }
    started.clear();  // copies under way end without being waited for
    CHECK(good == all);
    CHECK(all > 80);
    CHECK(refused > 5);
  }
}

}  // namespace side_copies_test
