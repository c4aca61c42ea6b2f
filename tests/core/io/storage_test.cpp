#include <memory>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/io/storage.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace storage_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

void check_round_trip(Storage& storage) {
  const auto first = random_bytes(10000, 1), second = random_bytes(3, 2);
  storage.write(20000, first);
  storage.write(0, second);
  storage.write(25000, second);
  std::vector<std::byte> back(10000);
  storage.read(20000, back);
  auto wanted = first;
  std::copy(second.begin(), second.end(), wanted.begin() + 5000);
  CHECK(back == wanted);
  back.resize(3);
  storage.read(0, back);
  CHECK(back == second);
}

}  // namespace

TEST_SUITE("core/io/storage") {
  TEST_CASE("written bytes are read back, from a file and from memory") {
    const TemporaryFolder folder;
    FileStorage file(folder.path());
    check_round_trip(file);
    CHECK(file.size() == 30000);
    MemoryStorage memory(30000);
    check_round_trip(memory);
  }

  TEST_CASE("memory in front of a file: the bytes of a range, of which little is in memory") {
    constexpr std::size_t piece = LayeredStorage::piece_bytes, size = 12 * piece;
    const TemporaryFolder folder;
    LayeredStorage storage(3 * piece, folder.path());
    check_round_trip(storage);
    CHECK(storage.file_size() == 0);
    std::mt19937 random(4);
    std::vector<std::byte> wanted(size);
    storage.write(0, wanted);
    CHECK(storage.file_size() == 9 * piece);
    for (int i = 0; i < 300; ++i) {
      const std::size_t begin = random() % size;
      const std::size_t count = 1 + random() % std::min(size - begin, 2 * piece);
      if (random() % 2 == 0) {
        const auto bytes = random_bytes(count, static_cast<unsigned>(i));
        storage.write(begin, bytes);
        std::copy(bytes.begin(), bytes.end(), wanted.begin() + static_cast<std::ptrdiff_t>(begin));
      } else {
        std::vector<std::byte> back(count);
        storage.read(begin, back);
        REQUIRE(std::equal(back.begin(), back.end(),
                           wanted.begin() + static_cast<std::ptrdiff_t>(begin)));
      }
    }
    CHECK(storage.file_size() <= size);
    CHECK(std::filesystem::is_empty(folder.path()));
  }

  TEST_CASE("the file is unnamed: nothing is left, however the process ends") {
    const TemporaryFolder folder;
    const FileStorage file(folder.path());
    CHECK(std::filesystem::is_empty(folder.path()));
  }

  TEST_CASE("reading past the end, and a path that is no folder, are errors") {
    const TemporaryFolder folder;
    FileStorage file(folder.path());
    std::vector<std::byte> bytes(10);
    CHECK(contains(error_text([&] { file.read(0, bytes); }), folder.path().string()));
    const auto none = folder.path() / "none";
    CHECK(contains(error_text([&] { FileStorage storage(none); }), none.string()));
    CHECK(!error_text([&] { FileStorage storage(folder.write("f", "")); }).empty());
    MemoryStorage memory(10);
    CHECK_THROWS(memory.write(1, bytes));
    CHECK_THROWS(memory.read(11, bytes));
    CHECK(!error_text([&] { LayeredStorage layered(10, none); }).empty());
  }
}

TEST_SUITE("core/io/extents") {
  TEST_CASE("random taking and giving back: nothing twice, nothing lost, nothing beyond the end") {
    constexpr std::uint32_t sectors = 200;
    std::mt19937 random(1);
    for (int round = 0; round < 20; ++round) {
      Extents extents(sectors);
      std::vector<int> users(sectors, 0);
      std::vector<std::vector<Extent>> taken;
      const auto count = [&](const std::vector<Extent>& pieces, int change) {
        std::uint32_t sum = 0;
        for (const Extent& piece : pieces) {
          REQUIRE(piece.first + piece.count <= sectors);
          for (std::uint32_t i = 0; i < piece.count; ++i) {
            users[piece.first + i] += change;
            REQUIRE((users[piece.first + i] == 0 || users[piece.first + i] == 1));
          }
          sum += piece.count;
        }
        return sum;
      };
      for (int i = 0; i < 300; ++i) {
        const std::uint32_t wanted = random() % 40;
        const std::uint32_t free = extents.free();
        if (auto pieces = extents.take(wanted)) {
          CHECK(wanted <= free);
          CHECK(count(*pieces, 1) == wanted);
          CHECK(extents.free() == free - wanted);
          taken.push_back(std::move(*pieces));
        } else {
          CHECK(wanted > free);
          CHECK(extents.free() == free);
        }
        if (random() % 2 == 0 && !taken.empty()) {
          std::swap(taken[random() % taken.size()], taken.back());
          count(taken.back(), -1);
          extents.give_back(taken.back());
          taken.pop_back();
        }
      }
      for (const auto& pieces : taken) extents.give_back(pieces);
      CHECK(extents.free() == sectors);
      // Adjacent free extents are joined.
      CHECK(extents.take(sectors)->size() == 1);
    }
  }

  TEST_CASE("all free sectors can be allocated, in as few extents as possible") {
    Extents extents(10);
    std::vector<std::vector<Extent>> single;
    for (int i = 0; i < 10; ++i) single.push_back(*extents.take(1));
    for (int i = 0; i < 10; i += 2) extents.give_back(single[static_cast<std::size_t>(i)]);
    CHECK(extents.free() == 5);
    CHECK(extents.take(5)->size() == 5);
    CHECK(!extents.take(1));
    CHECK(extents.take(0)->empty());
  }

  TEST_CASE("giving back twice is a broken rule") {
    Extents extents(10);
    const auto taken = *extents.take(4);
    extents.give_back(taken);
    CHECK_THROWS(extents.give_back(taken));
  }
}

}  // namespace storage_test
