#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>

#include "app/model/weight_hashes.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace weight_hashes_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

std::string many_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 7 + i / 1000);
  return bytes;
}

/// Polls until all is known.
void finish(WeightHashes& hashes) {
  while (!hashes.poll()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

TEST_SUITE("app/weight_hashes") {
  TEST_CASE("every byte counts, and files that were read before are known by their stamps") {
    const TemporaryFolder folder;
    const auto cache = folder.path() / "state" / "hashes";
    std::string large = many_bytes(9'000'001);  // read in pieces
    const std::vector<std::filesystem::path> paths = {folder.write("a", large),
                                                      folder.write("b", "")};
    WeightHashes first(paths, HashCache(cache));
    CHECK_FALSE(first.poll());
    first.start();
    finish(first);
    CHECK(first.files()[0].hash == hash_of(large));
    CHECK(first.files()[1].hash == hash_of(""));
    CHECK(first.files()[0].name() == "a");

    WeightHashes second(paths, HashCache(cache));
    CHECK(second.poll());
    CHECK(second.files()[0].hash == hash_of(large));

    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // times of files have ticks
    const FileStamp before = stamp_of(paths[0]);
    struct stat is {};
    REQUIRE(::stat(paths[0].c_str(), &is) == 0);
    large[4'500'000] = static_cast<char>(large[4'500'000] ^ 1);
    {
      std::fstream(paths[0], std::ios::in | std::ios::out | std::ios::binary)
          .seekp(4'500'000)
          .put(large[4'500'000]);
    }
    const std::array<timespec, 2> times = {is.st_atim, is.st_mtim};
    REQUIRE(::utimensat(AT_FDCWD, paths[0].c_str(), times.data(), 0) == 0);
    CHECK(stamp_of(paths[0]).modified_ns == before.modified_ns);
    WeightHashes third(paths, HashCache(cache));
    CHECK_FALSE(third.poll());  // restoring the time of modification hides nothing
    third.start();
    finish(third);
    CHECK(third.files()[0].hash == hash_of(large));
  }

  TEST_CASE("a damaged cache is an empty one, and a cache has a limit") {
    const TemporaryFolder folder;
    const auto path = folder.write("hashes", "nonsense\n1 2 3 4 00000000000000aa 0b\n5 6 7\n");
    HashCache cache(path);
    CHECK(cache.find({1, 2, 3, 4}) == Hash128{.high = 0xaa, .low = 0xb});
    CHECK_FALSE(cache.find({1, 2, 3, 5}));
    std::string text;
    for (std::size_t i = 0; i < HashCache::entries_max; ++i) {
      text += std::to_string(i) + " 1 1 1 1 1\n";
    }
    folder.write("hashes", text);
    cache.add({7777, 1, 1, 1}, {.high = 3, .low = 4});
    CHECK_FALSE(HashCache(path).find({0, 1, 1, 1}));
    CHECK(HashCache(path).find({1, 1, 1, 1}));
    CHECK(HashCache(path).find({7777, 1, 1, 1}));
    HashCache none(std::nullopt);
    none.add({1, 1, 1, 1}, {});
    CHECK_FALSE(none.find({1, 1, 1, 1}));
    HashCache unwritable("/dev/null/x/hashes");
    CHECK_NOTHROW(unwritable.add({1, 1, 1, 1}, {}));
  }

  TEST_CASE("a file that is missing, shorter or changed while it is read is an error") {
    const TemporaryFolder folder;
    CHECK(contains(
        model_error([&] { WeightHashes({folder.path() / "absent"}, HashCache(std::nullopt)); }),
        "absent: can't be examined"));
    const auto path = folder.write("a", many_bytes(1000));
    WeightHashes hashes({path}, HashCache(std::nullopt));
    folder.write("a", many_bytes(1001));
    hashes.start();
    CHECK(contains(model_error([&] { finish(hashes); }), "was changed while it was in use"));
  }
}

}  // namespace weight_hashes_test
