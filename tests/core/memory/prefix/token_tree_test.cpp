#include <algorithm>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "core/memory/prefix/token_tree.h"

namespace token_tree_test {

using namespace hyb;

namespace {

using Tree = TokenTree<int>;
using Key = std::vector<TokenId>;

Key random_key(std::mt19937_64& random) {
  Key key(1 + random() % 12);
  for (TokenId& token : key) token = TokenId{static_cast<std::int32_t>(random() % 3)};
  return key;
}

void insert(Tree& tree, const Key& key) {
  const Tree::Match match = tree.match(key);
  if (match.tokens == static_cast<std::int32_t>(key.size())) return;
  const std::int32_t node =
      match.partial >= 0 ? tree.split(match.partial, match.tokens) : match.last();
  tree.append(node, std::span(key).subspan(static_cast<std::size_t>(match.tokens)));
}

std::size_t common(const Key& a, const Key& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

/// Depths, parents and edges add up along a match.
void check_path(const Tree& tree, const Key& key, const Tree::Match& match) {
  std::int32_t depth = 0, parent = 0;
  for (const std::int32_t node : match.path) {
    CHECK(tree[node].parent == parent);
    const std::vector<TokenId>& edge = tree[node].edge;
    CHECK(std::equal(edge.begin(), edge.end(), key.begin() + depth));
    depth += tree[node].edge_length();
    CHECK(tree[node].depth == depth);
    parent = node;
  }
  CHECK(match.tokens >= depth);
  if (match.partial < 0) CHECK(match.tokens == depth);
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
        const Tree::Match match = tree.match(key);
        CHECK(static_cast<std::size_t>(match.tokens) == longest);
        check_path(tree, key, match);
        insert(tree, key);
        keys.push_back(key);
        CHECK(tree.match(key).tokens == static_cast<std::int32_t>(key.size()));
      }
    }
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
        const Tree::Match match = tree.match(key);
        if (match.path.empty()) continue;
        const std::int32_t node = match.last();
        const std::int32_t above = tree[tree[node].parent].depth;
        if (tree.is_leaf(node)) {
          tree.remove_leaf(node);
          CHECK(tree.match(key).tokens == above);
        } else if (tree[node].children.size() == 1) {
          tree.merge_into_child(node);
          CHECK(tree.match(key).tokens == match.tokens);
          check_path(tree, key, tree.match(key));
        }
      }
    }
  }
}

}  // namespace token_tree_test
