#include <array>
#include <random>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/arena/arena.h"

namespace arena_test {

using namespace hyb;
using namespace hyb::kernels;

TEST_SUITE("kernels/arena/handle_table") {
  TEST_CASE("the lowest free name is given out") {
    std::mt19937 random(5);
    HandleTable table;
    std::set<std::int32_t> held;
    for (int i = 0; i < 2000; ++i) {
      if (held.empty() || random() % 5 < 3) {
        std::int32_t lowest = 0;
        while (held.contains(lowest)) ++lowest;
        CHECK(index(table.add()) == lowest);
        held.insert(lowest);
      } else {
        const auto victim = std::next(held.begin(), random() % held.size());
        table.remove(HandleId{*victim});
        held.erase(victim);
      }
      CHECK(table.held() == held.size());
    }
  }

  TEST_CASE("a handle is released once, and when it is mapped nowhere") {
    HandleTable table;
    const HandleId handle = table.add();
    const std::array twice = {handle, handle};
    table.map(twice);
    const std::span<const HandleId> once = std::span(twice).first(1);
    table.unmap(once);
    CHECK_THROWS_AS(table.remove(handle), Error);
    table.unmap(once);
    CHECK_THROWS_AS(table.unmap(once), Error);
    table.remove(handle);
    CHECK_THROWS_AS(table.remove(handle), Error);
    CHECK_THROWS_AS(table.map(twice), Error);
    CHECK_THROWS_AS(table.check_exists(HandleId{-2}), Error);
  }
}

}  // namespace arena_test
