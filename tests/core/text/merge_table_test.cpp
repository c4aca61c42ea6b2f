#include "core/text/merge_table.h"

#include <doctest/doctest.h>

using namespace hyb;

TEST_SUITE("core/text/merge_table") {
  TEST_CASE("pairs have the rank of their place, the later one when repeated") {
    MergeTable table(2001);
    for (int i = 0; i < 2000; ++i) table.add(TokenId{i}, TokenId{i * 31 % 977}, TokenId{5000 + i});
    for (int i = 0; i < 2000; ++i) {
      REQUIRE(table.rank(TokenId{i}, TokenId{i * 31 % 977}) == i);
      REQUIRE(table.merged(i) == TokenId{5000 + i});
    }
    CHECK(table.rank(TokenId{5}, TokenId{6}) == MergeTable::none);
    table.add(TokenId{0}, TokenId{0}, TokenId{1});
    CHECK(table.rank(TokenId{0}, TokenId{0}) == 2000);
    CHECK(table.merged(2000) == TokenId{1});
  }

  TEST_CASE("an empty table merges nothing") {
    CHECK(MergeTable(0).rank(TokenId{0}, TokenId{0}) == MergeTable::none);
  }
}
