#include "core/memory/prefix_node.h"

#include <doctest/doctest.h>

#include <deque>
#include <map>
#include <random>

#include "core/base/error.h"

using namespace hyb;

TEST_SUITE("core/memory/prefix_node") {
  TEST_CASE("children are found by the first token of their edge, as in a map") {
    std::mt19937 random(1);
    for (const int tokens : {2, 5, 300}) {
      CAPTURE(tokens);
      ChildNodes children;
      std::map<TokenId, PrefixNode*> expected;
      std::deque<PrefixNode> nodes(500);
      for (std::size_t i = 0; i < 20000; ++i) {
        const TokenId first{static_cast<std::int32_t>(random() % tokens) * 1024};
        PrefixNode* const node = &nodes[random() % nodes.size()];
        if (!expected.contains(first)) {
          children.insert(first, node);
          expected[first] = node;
        } else if (random() % 4 == 0) {
          children.replace(first, node);
          expected[first] = node;
        } else {
          children.erase(first);
          expected.erase(first);
        }
        REQUIRE(children.size() == static_cast<std::int32_t>(expected.size()));
        const TokenId asked{static_cast<std::int32_t>(random() % tokens) * 1024};
        const auto found = expected.find(asked);
        REQUIRE(children.find(asked) == (found == expected.end() ? nullptr : found->second));
        if (i % 100 != 0) continue;
        std::map<TokenId, PrefixNode*> visited;
        children.for_each([&](TokenId token, PrefixNode* child) { visited[token] = child; });
        REQUIRE(visited == expected);
        for (const auto& [token, child] : expected) REQUIRE(children.find(token) == child);
      }
    }
  }

  TEST_CASE("any child, but not one that is named") {
    PrefixNode a, b;
    ChildNodes children;
    CHECK(children.any() == nullptr);
    children.insert(TokenId{1}, &a);
    CHECK(children.any() == &a);
    CHECK(children.any(&a) == nullptr);
    children.insert(TokenId{2}, &b);
    CHECK(children.any(&a) == &b);
    CHECK(children.any(&b) == &a);
  }

  TEST_CASE("token -1 and 0 are tokens like others") {
    PrefixNode a;
    ChildNodes children;
    CHECK(children.find(TokenId{0}) == nullptr);
    CHECK(children.find(TokenId{-1}) == nullptr);
    children.insert(TokenId{0}, &a);
    CHECK(children.find(TokenId{0}) == &a);
    CHECK(children.find(TokenId{-1}) == nullptr);
  }

  TEST_CASE("two children with one first token are a bug of ours") {
    PrefixNode a, b;
    ChildNodes children;
    children.insert(TokenId{1}, &a);
    CHECK_THROWS_AS(children.insert(TokenId{1}, &b), Error);
    CHECK_THROWS_AS(children.replace(TokenId{2}, &b), Error);
    CHECK_THROWS_AS(children.erase(TokenId{2}), Error);
  }
}
