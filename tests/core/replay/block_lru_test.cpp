#include "core/replay/block_lru.h"

#include <doctest/doctest.h>

using namespace hyb;
using Kind = BlockLru::Kind;

namespace {

std::vector<TokenId> tokens(std::initializer_list<int> values) {
  std::vector<TokenId> all;
  for (const int value : values) all.push_back(TokenId{value});
  return all;
}

}  // namespace

TEST_SUITE("core/replay/block_lru") {
  TEST_CASE("a block is known by all tokens up to its end, and only whole blocks are") {
    const auto a = block_hashes(tokens({1, 2, 3, 4, 5}), 2);
    const auto b = block_hashes(tokens({1, 2, 9, 4, 5}), 2);
    const auto c = block_hashes(tokens({7, 2, 3, 4}), 2);
    CHECK(a.size() == 2);
    CHECK(a[0] == b[0]);
    CHECK(a[1] != b[1]);
    CHECK(a[1] != c[1]);
    CHECK(block_hashes(tokens({1}), 2).empty());
  }

  TEST_CASE("the least recently used goes first, of equals the deepest") {
    BlockLru lru(30);
    CHECK(lru.touch({1, Kind::kv}, 1, 10, 1));
    CHECK(lru.touch({2, Kind::kv}, 2, 10, 1));
    CHECK(lru.touch({3, Kind::state}, 1, 10, 2));
    CHECK(lru.shrink(99) == 0);
    CHECK(lru.touch({4, Kind::kv}, 1, 10, 3));
    CHECK(lru.shrink(99) == 1);
    CHECK(!lru.has({2, Kind::kv}));
    CHECK(!lru.touch({1, Kind::kv}, 1, 10, 4));
    CHECK(lru.touch({5, Kind::kv}, 1, 10, 5));
    CHECK(lru.shrink(99) == 1);
    CHECK(!lru.has({3, Kind::state}));
    CHECK(lru.has({1, Kind::kv}));
    CHECK(lru.bytes(Kind::kv) == 30);
    CHECK(lru.bytes(Kind::state) == 0);
  }

  TEST_CASE("what is as young as asked stays, over the budget or not") {
    BlockLru lru(10);
    lru.touch({1, Kind::kv}, 1, 10, 1);
    lru.touch({2, Kind::kv}, 1, 10, 2);
    lru.touch({3, Kind::kv}, 2, 10, 2);
    CHECK(lru.shrink(2) == 1);
    CHECK(lru.bytes(Kind::kv) == 20);
    CHECK(lru.shrink(3) == 1);
    CHECK(lru.has({2, Kind::kv}));
  }

  TEST_CASE("reuse counts once per life") {
    BlockLru lru(10);
    CHECK(!lru.reuse({1, Kind::kv}));
    lru.touch({1, Kind::kv}, 1, 10, 1);
    CHECK(lru.reuse({1, Kind::kv}));
    CHECK(!lru.reuse({1, Kind::kv}));
  }
}
