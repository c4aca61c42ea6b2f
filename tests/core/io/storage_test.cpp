#include "core/io/storage.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

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
  TEST_CASE("what was written is read, from a file and from memory") {
    const TemporaryFolder folder;
    FileStorage file(folder.path());
    check_round_trip(file);
    CHECK(file.size() == 30000);
    MemoryStorage memory(30000);
    check_round_trip(memory);
  }

  TEST_CASE("the file has no name: nothing is left, however the process ends") {
    const TemporaryFolder folder;
    const FileStorage file(folder.path());
    CHECK(std::filesystem::is_empty(folder.path()));
  }

  TEST_CASE("reading past the end, and a folder that is none, are errors") {
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
  }
}
