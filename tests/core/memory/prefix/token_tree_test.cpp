#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/prefix/token_tree.h"

namespace token_tree_test {

using namespace hyb;

namespace {

using Tree = TokenTree<int>;
using Children = TokenChildren<Tree::Node>;
using Key = std::vector<TokenId>;

Key random_key(std::mt19937_64& random) {
  Key key(1 + random() % 12);
  for (TokenId& token : key) token = TokenId{static_cast<std::int32_t>(random() % 3)};
  return key;
}

void insert(Tree& tree, const Key& key) {
  const Tree::Walk walk = tree.walk(key);
  if (walk.tokens == static_cast<std::int32_t>(key.size())) return;
  tree.append(tree.split(walk), std::span(key).subspan(static_cast<std::size_t>(walk.tokens)));
}

std::size_t common(const Key& a, const Key& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

/// Depths, parents and edges add up along a walk.
void check_path(Tree& tree, const Key& key, const Tree::Walk& walk) {
  std::int32_t depth = 0;
  const Tree::Node* parent = tree.root();
  for (const Tree::Node* const node : Tree::path_to(walk.last())) {
    CHECK(node->parent == parent);
    CHECK(tree.node(node->id) == node);
    CHECK(std::equal(node->edge.begin(), node->edge.end(), key.begin() + depth));
    depth += node->edge_length();
    CHECK(node->depth == depth);
    parent = node;
  }
  CHECK(walk.tokens >= depth);
  if (!walk.is_partial()) CHECK(walk.tokens == depth);
  tree.audit();
}

}  // namespace

TEST_SUITE("core/memory/token_tree") {
  TEST_CASE("matches are the longest common prefix with any key") {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      std::mt19937_64 random(seed);
      Tree tree;
      std::vector<Key> keys;
      for (int i = 0; i < 60; ++i) {
        const Key key = random_key(random);
        std::size_t longest = 0;
        for (const Key& known : keys) longest = std::max(longest, common(known, key));
        const Tree::Walk walk = tree.walk(key);
        CHECK(static_cast<std::size_t>(walk.tokens) == longest);
        check_path(tree, key, walk);
        insert(tree, key);
        keys.push_back(key);
        CHECK(tree.walk(key).tokens == static_cast<std::int32_t>(key.size()));
      }
    }
  }

  TEST_CASE("long paths are walked right while nodes that earlier walks passed go and come back") {
    std::mt19937_64 random(1);
    Tree tree;
    Key line(400);
    for (TokenId& token : line) token = TokenId{static_cast<std::int32_t>(random() % 5)};
    const auto start = [&](std::size_t tokens) {
      return Key(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(tokens));
    };
    std::size_t known = 0;
    for (int i = 0; i < 3000; ++i) {
      if (random() % 3 == 0) {
        Tree::Node* const leaf = tree.walk(start(known)).last();
        if (leaf != tree.root() && leaf->is_leaf()) {
          known = static_cast<std::size_t>(leaf->parent->depth);
          tree.remove_leaf(leaf);
        }
      } else if (known < line.size()) {
        known += std::min<std::size_t>(1 + random() % 9, line.size() - known);
        insert(tree, start(known));
      }
      const Tree::Walk walk = tree.walk(line);
      REQUIRE(static_cast<std::size_t>(walk.tokens) == known);
      if (i % 100 == 0) check_path(tree, line, walk);
    }
    CHECK(known > 300);
  }

  TEST_CASE("leaves and nodes with one child go without a trace") {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      std::mt19937_64 random(seed);
      Tree tree;
      std::vector<Key> keys;
      for (int i = 0; i < 40; ++i) {
        keys.push_back(random_key(random));
        insert(tree, keys.back());
      }
      // A node with one child adds nothing to what matches; a leaf takes its tokens along.
      for (const Key& key : keys) {
        const Tree::Walk walk = tree.walk(key);
        Tree::Node* const node = walk.last();
        if (node == tree.root()) continue;
        const std::int32_t above = node->parent->depth;
        if (node->is_leaf()) {
          tree.remove_leaf(node);
          CHECK(tree.walk(key).tokens == above);
        } else if (node->children.size() == 1) {
          tree.merge_into_child(node);
          CHECK(tree.walk(key).tokens == walk.tokens);
          check_path(tree, key, tree.walk(key));
        }
      }
    }
  }
}

TEST_SUITE("core/memory/token_children") {
  TEST_CASE("children are found by the first token of their edge, as in a map") {
    std::mt19937 random(1);
    for (const int tokens : {2, 5, 300}) {
      CAPTURE(tokens);
      Children children;
      std::map<TokenId, Tree::Node*> expected;
      std::vector<Tree::Node> nodes(500);
      for (std::size_t i = 0; i < 20000; ++i) {
        const TokenId first{static_cast<std::int32_t>(random() % tokens) * 1024};
        Tree::Node* const node = &nodes[random() % nodes.size()];
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
        std::map<TokenId, Tree::Node*> visited;
        children.for_each([&](TokenId token, Tree::Node* child) { visited[token] = child; });
        REQUIRE(visited == expected);
        for (const auto& [token, child] : expected) REQUIRE(children.find(token) == child);
      }
    }
  }

  TEST_CASE("any child, but not one that is named") {
    Tree::Node a, b;
    Children children;
    CHECK(children.any() == nullptr);
    children.insert(TokenId{1}, &a);
    CHECK(children.any() == &a);
    CHECK(children.any(&a) == nullptr);
    children.insert(TokenId{2}, &b);
    CHECK(children.any(&a) == &b);
    CHECK(children.any(&b) == &a);
  }

  TEST_CASE("token -1 and 0 are tokens like others") {
    Tree::Node a;
    Children children;
    CHECK(children.find(TokenId{0}) == nullptr);
    CHECK(children.find(TokenId{-1}) == nullptr);
    children.insert(TokenId{0}, &a);
    CHECK(children.find(TokenId{0}) == &a);
    CHECK(children.find(TokenId{-1}) == nullptr);
  }

  TEST_CASE("two children with one first token are a bug of ours") {
    Tree::Node a, b;
    Children children;
    children.insert(TokenId{1}, &a);
    CHECK_THROWS_AS(children.insert(TokenId{1}, &b), Error);
    CHECK_THROWS_AS(children.replace(TokenId{2}, &b), Error);
    CHECK_THROWS_AS(children.erase(TokenId{2}), Error);
  }
}

}  // namespace token_tree_test
