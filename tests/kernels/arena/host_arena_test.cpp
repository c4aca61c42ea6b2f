#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/arena/host_arena.h"
#include "tests/kernels/arena/arena_laws.h"
#include "tests/support/error_text.h"

namespace host_arena_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;
using hyb::testing::contains;
using hyb::testing::error_text;

namespace {

/// Memory that the file of the only HostArena holds.
std::size_t physical_bytes() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own descriptor
    struct stat status {};
    if (contains(std::filesystem::read_symlink(entry, gone).string(), "hyb-arena") &&
        stat(entry.path().c_str(), &status) == 0) {
      return static_cast<std::size_t>(status.st_blocks) * 512;
    }
  }
  throw std::runtime_error("no arena's file is open");
}

std::size_t mappings_of_process() {
  std::ifstream maps("/proc/self/maps");
  std::size_t lines = 0;
  for (std::string line; std::getline(maps, line);) lines += contains(line, "hyb-arena") ? 1 : 0;
  return lines;
}

}  // namespace

TEST_SUITE("kernels/arena/host_arena") {
  TEST_CASE("the laws of an arena") {
    for (const std::size_t bytes : {4096u, 65536u, 2u << 20}) {
      HostArena arena(bytes);
      check_arena_laws(arena);
    }
  }

  TEST_CASE("memory is held from the first touch to the release") {
    constexpr std::size_t bytes = 65536;
    HostArena arena(bytes);
    std::byte* const at = arena.reserve(2 * bytes);
    const std::array handles = {arena.create(), arena.create()};
    arena.map(at, handles);
    CHECK(physical_bytes() == 0);
    at[0] = std::byte{1};
    CHECK(physical_bytes() < bytes);
    std::memset(at, 7, 2 * bytes);
    CHECK(physical_bytes() == 2 * bytes);
    arena.unmap(at, {&handles[0], 1});
    CHECK(physical_bytes() == 2 * bytes);
    arena.release(handles[0]);
    CHECK(physical_bytes() == bytes);

    // A new handle has none of the old bytes.
    const HandleId again = arena.create();
    CHECK(again == handles[0]);
    arena.map(at, std::array{again});
    CHECK(at[0] == std::byte{0});
    CHECK(at[bytes] == std::byte{7});
    arena.unmap(at, {&again, 1});
    arena.unmap(at + bytes, {&handles[1], 1});
    arena.release(again);
    arena.release(handles[1]);
    arena.unreserve(at, 2 * bytes);
  }

  TEST_CASE("neighbours in memory take one mapping, others one each") {
    constexpr std::size_t bytes = 4096;
    HostArena arena(bytes);
    std::vector<HandleId> handles;
    for (int i = 0; i < 64; ++i) handles.push_back(arena.create());
    std::byte* const at = arena.reserve(64 * bytes);
    const std::size_t before = mappings_of_process();
    arena.map(at, handles);
    CHECK(mappings_of_process() == before + 1);
    for (std::size_t i = 0; i < 64; ++i) arena.unmap(at + i * bytes, {&handles[i], 1});
    CHECK(mappings_of_process() == before);
    const std::vector<HandleId> backwards(handles.rbegin(), handles.rend());
    arena.map(at, backwards);
    CHECK(mappings_of_process() == before + 64);
    const std::size_t most = arena.mappings_max();
    CHECK(most > 1000);
    CHECK(most < 1u << 30);
    for (std::size_t i = 0; i < 64; ++i) arena.unmap(at + i * bytes, {&backwards[i], 1});
    for (const HandleId handle : handles) arena.release(handle);
    arena.unreserve(at, 64 * bytes);
  }

  TEST_CASE("addresses that the machine lacks are a memory error with the numbers") {
    HostArena arena(4096);
    const std::string text = error_text([&] { arena.reserve(std::size_t{1} << 50); });
    CHECK(contains(text, "1125899906842624 bytes"));
    CHECK(contains(text, "--memory"));
    CHECK_THROWS_AS(HostArena(1000), Error);
    CHECK_THROWS_AS(HostArena(0), Error);
  }
}

TEST_SUITE("kernels/arena/private_arena") {
  TEST_CASE("memory is zero when it is mapped, faults before and after, and aliases nowhere") {
    for (const std::size_t bytes : {4096u, 4u << 20}) {
      PrivateArena arena(bytes);
      CHECK_FALSE(arena.aliases());
      std::byte* const at = arena.reserve(3 * bytes);
      CHECK(read_faults(at));
      const std::array handles = {arena.create(), arena.create()};
      CHECK(arena.bytes_held() == 2 * bytes);
      arena.map(at, handles);
      CHECK(at[2 * bytes - 1] == std::byte{0});
      arena.fill(at, 2 * bytes, std::byte{3});
      CHECK(at[2 * bytes - 1] == std::byte{3});
      CHECK(read_faults(at + 2 * bytes));
      arena.unmap(at, {&handles[0], 1});
      CHECK(read_faults(at + bytes - 1));
      CHECK(at[bytes] == std::byte{3});
      arena.map(at, std::array{handles[0]});
      CHECK(at[0] == std::byte{0});
      CHECK_THROWS_AS(arena.release(handles[1]), Error);
      arena.unmap(at, {&handles[0], 1});
      arena.unmap(at + bytes, {&handles[1], 1});
      CHECK_THROWS_AS(arena.unmap(at, std::span(handles).first(1)), Error);
      for (const HandleId handle : handles) arena.release(handle);
      CHECK(arena.bytes_held() == 0);
      arena.unreserve(at, 3 * bytes);
    }
    CHECK_THROWS_AS(PrivateArena(100), Error);
  }

  TEST_CASE("where unused addresses are zeros, unmapping still frees the memory") {
    constexpr std::size_t bytes = 65536;
    PrivateArena arena(bytes, Unmapped::zeros);
    CHECK(arena.mappings_max() > std::size_t{1} << 40);
    std::byte* const at = arena.reserve(2 * bytes);
    const HandleId handle = arena.create();
    CHECK(at[bytes] == std::byte{0});
    arena.map(at + bytes, std::array{handle});
    arena.fill(at + bytes, bytes, std::byte{5});
    CHECK_THROWS_AS(arena.release(handle), Error);
    arena.unmap(at + bytes, {&handle, 1});
    CHECK(at[bytes] == std::byte{0});
    CHECK(at[2 * bytes - 1] == std::byte{0});
    arena.release(handle);
    arena.unreserve(at, 2 * bytes);
  }
}

TEST_SUITE("kernels/arena/shared_arena") {
  TEST_CASE("a forked process has the same bytes, also those that are mapped or freed later") {
    for (const std::size_t bytes : {4096u, 4u << 20}) {
      SharedArena arena(bytes);
      CHECK_FALSE(arena.aliases());
      std::byte* const at = arena.reserve(3 * bytes);
      const std::array handles = {arena.create(), arena.create()};
      CHECK(at[0] == std::byte{0});
      arena.map(at, handles);
      arena.fill(at, 2 * bytes, std::byte{3});

      std::array<int, 2> turn{}, answer{};
      REQUIRE(pipe(turn.data()) == 0);
      REQUIRE(pipe(answer.data()) == 0);
      const pid_t child = fork();
      if (child == 0) {
        char go = 0;
        bool is_right = at[bytes - 1] == std::byte{3};
        at[0] = std::byte{4};
        is_right = write(answer[1], "x", 1) == 1 && is_right;
        is_right = read(turn[0], &go, 1) == 1 && is_right;
        // By now the first handle was unmapped, and the other one mapped a second time.
        is_right = is_right && at[0] == std::byte{0} && at[bytes] == std::byte{7};
        at[2 * bytes - 1] = std::byte{8};
        _exit(is_right ? 0 : 1);
      }
      char come = 0;
      REQUIRE(read(answer[0], &come, 1) == 1);
      CHECK(at[0] == std::byte{4});
      arena.unmap(at, {&handles[0], 1});
      arena.unmap(at + bytes, {&handles[1], 1});
      arena.map(at + bytes, std::array{handles[1]});
      CHECK(at[2 * bytes - 1] == std::byte{0});
      at[bytes] = std::byte{7};
      REQUIRE(write(turn[1], "x", 1) == 1);
      int status = -1;
      waitpid(child, &status, 0);
      CHECK(status == 0);
      CHECK(at[2 * bytes - 1] == std::byte{8});
      for (const int end : {turn[0], turn[1], answer[0], answer[1]}) close(end);

      CHECK_THROWS_AS(arena.release(handles[1]), Error);
      arena.unmap(at + bytes, {&handles[1], 1});
      for (const HandleId handle : handles) arena.release(handle);
      CHECK(arena.bytes_held() == 0);
      arena.unreserve(at, 3 * bytes);
    }
    CHECK_THROWS_AS(SharedArena(100), Error);
  }

  TEST_CASE("unmapping gives memory back to the machine") {
    constexpr std::size_t bytes = 1 << 20;
    SharedArena arena(bytes);
    std::byte* const at = arena.reserve(bytes);
    const HandleId handle = arena.create();
    const auto pages_in_memory = [&] {
      std::vector<unsigned char> pages(bytes / 4096);
      REQUIRE(mincore(at, bytes, pages.data()) == 0);
      return std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
    };
    arena.map(at, std::array{handle});
    CHECK(pages_in_memory() == 0);
    arena.fill(at, bytes, std::byte{1});
    CHECK(pages_in_memory() == 256);
    arena.unmap(at, std::array{handle});
    CHECK(pages_in_memory() == 0);
    arena.release(handle);
    arena.unreserve(at, bytes);
  }
}

}  // namespace host_arena_test
