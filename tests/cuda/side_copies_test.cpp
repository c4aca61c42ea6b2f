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
    const auto copies = make_side_copies(queue, {.out = 1 << 20});
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
    const auto copies = make_side_copies(queue, {.out = 1000});
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
    CHECK(make_side_copies(queue, {}) == nullptr);
  }

  TEST_CASE("random schedules with a thread that waits: every copy has the bytes of its start") {
    Queue queue(Device::cuda, {.threads = 1, .isa = {}});
    const auto copies = make_side_copies(queue, {.out = 20'000});
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

  TEST_CASE("the way back: what the queue did before is done first, and its later work goes on") {
    Queue queue(Device::cuda, {.threads = 1, .isa = {}});
    const auto copies = make_side_copies(queue, {.back = 3000});
    Buffer unit(Device::cuda, 4096), other(Device::cuda, 4096), saved(Device::cuda, 4096);
    std::mt19937 random(2);
    const Bytes old = random_bytes(4096, random), come = random_bytes(2000, random);
    upload(queue, unit.data(), old);
    CHECK(copies->stage_write(3001) == nullptr);
    auto staged = copies->stage_write(2000);
    REQUIRE(staged != nullptr);
    CHECK(copies->stage_write(2000) == nullptr);
    std::ranges::copy(come, staged->room().begin());
    kernels::copy(queue, saved.data(), unit.data(), 4096);  // still reads the old bytes
    const std::vector<std::span<std::byte>> parts = {{unit.data() + 100, 500},
                                                     {unit.data() + 2000, 1400}};
    staged->start(parts);
    Bytes now(4096);
    for (int step = 0; step < 3; ++step) {  // steps run and are waited for beside the copy
      upload(queue, other.data(), old);
      wait(queue);
      download(queue, now, other.data());
      CHECK(now == old);
    }
    staged->wait();
    CHECK(staged->is_done());
    download(queue, now, saved.data());
    CHECK(now == old);
    Bytes wanted = old;
    std::copy_n(come.begin(), 500, wanted.begin() + 100);
    std::copy_n(come.begin() + 500, 1400, wanted.begin() + 2000);
    download(queue, now, unit.data());
    CHECK(now == wanted);
    staged.reset();
    staged = copies->stage_write(3000);
    REQUIRE(staged != nullptr);
    std::ranges::fill(staged->room(), std::byte{9});
    staged->start(parts);
    staged.reset();  // ends first
    download(queue, now, unit.data());
    CHECK(now[100] == std::byte{9});
    CHECK(copies->start({}, 1) == nullptr);  // there is no room for the other way
  }
}

}  // namespace side_copies_test
