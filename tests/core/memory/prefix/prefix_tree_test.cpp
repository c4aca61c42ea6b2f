#include <deque>
#include <map>
#include <random>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/memory/prefix/prefix_tree.h"
#include "tests/support/free_units.h"
#include "tests/support/prefix.h"
#include "tests/support/resumable.h"
#include "tests/support/toy_layout.h"

namespace prefix_tree_test {

using namespace hyb;

using namespace hyb::testing;

namespace {

/// The tree, and a list of its keys as the oracle.
struct Scenario {
  explicit Scenario(const ToyShape& shape) : pool(toy_layout(shape)) {}

  void insert(const Key& key) {
    Snapshot* const snapshot =
        tree.insert(key, checkpoint_at(pool, length_of(key)), SnapshotPlace::turn_end);
    REQUIRE((snapshot == nullptr) == (snapshots.count(key) > 0));
    if (snapshot == nullptr) return;
    snapshots[key] = snapshot;
    keys.push_back(key);
  }

  void erase(std::size_t which) {
    const Key key = keys[which];
    REQUIRE(PrefixTree::key(*snapshots[key]) == key);
    REQUIRE(tree.erase(*snapshots[key]).length() == length_of(key));
    snapshots.erase(key);
    keys[which] = keys.back();
    keys.pop_back();
  }

  std::int32_t deepest(const Key& query, std::int32_t limit) const {
    std::int32_t deepest = 0;
    for (const auto& [key, snapshot] : snapshots) {
      const std::int32_t common = std::min(limit, common_prefix(key, query));
      for (std::int32_t length = common; length > deepest; --length) {
        if (can_resume(pool, snapshot->checkpoint, length)) deepest = length;
      }
    }
    return deepest;
  }

  void check_match(const Key& query, std::int32_t limit) const {
    std::int32_t matched = 0;
    for (const Key& key : keys) matched = std::max(matched, common_prefix(key, query));
    const Lookup found = tree.look_up(query, limit, pool.layout());
    REQUIRE(found.matched == matched);
    REQUIRE(found.resumable == deepest(query, limit));
    REQUIRE((found.snapshot == nullptr) == (found.resumable == 0));
    if (found.snapshot == nullptr) return;
    const Key key = PrefixTree::key(*found.snapshot);
    REQUIRE(snapshots.at(key) == found.snapshot);
    REQUIRE(common_prefix(key, query) >= found.resumable);
    REQUIRE(can_resume(pool, found.snapshot->checkpoint, found.resumable));
  }

  /// As if `absent` were not there.
  Neighborhood expected_standing(const Key& query, const Snapshot* absent) const {
    Neighborhood expected{.depth = length_of(query)};
    for (const auto& [key, snapshot] : snapshots) {
      if (snapshot == absent) continue;
      const std::int32_t common = common_prefix(key, query);
      if (key == query) {
        expected.here = snapshot;
        continue;
      }
      expected.shared = std::max(expected.shared, common);
      const bool on_the_way = common == length_of(key);
      const std::int32_t above =
          expected.above == nullptr ? 0 : expected.above->checkpoint.length();
      if (on_the_way && common > above) expected.above = snapshot;
    }
    return expected;
  }

  void check_standing(const Key& query, const Neighborhood& neighborhood,
                      const Snapshot* absent) const {
    const Neighborhood expected = expected_standing(query, absent);
    REQUIRE(neighborhood.depth == expected.depth);
    REQUIRE(neighborhood.shared == expected.shared);
    REQUIRE(neighborhood.above == expected.above);
    REQUIRE(neighborhood.here == expected.here);
    if (expected.shared == 0) return;
    REQUIRE(neighborhood.other != nullptr);
    REQUIRE(neighborhood.other != expected.here);
    REQUIRE(neighborhood.other != absent);
    REQUIRE(common_prefix(PrefixTree::key(*neighborhood.other), query) >= expected.shared);
  }

  void check_standing(const Key& query) const {
    const Neighborhood neighborhood = tree.neighborhood(query);
    check_standing(query, neighborhood, nullptr);
    if (neighborhood.above == nullptr) return;
    check_standing(query, tree.without_above(neighborhood), neighborhood.above);
  }

  void check_on_the_way(const Key& query) const {
    std::vector<Snapshot*> expected;
    for (std::size_t length = 1; length <= query.size(); ++length) {
      const auto found =
          snapshots.find(Key(query.begin(), query.begin() + static_cast<std::ptrdiff_t>(length)));
      if (found != snapshots.end()) expected.push_back(found->second);
    }
    REQUIRE(tree.on_the_way(query) == expected);
  }

  MemoryPool pool;
  PrefixTree tree;
  std::vector<Key> keys;
  std::map<Key, Snapshot*> snapshots;
};

void run(const ToyShape& shape, unsigned seed) {
  std::mt19937 random(seed);
  Scenario scenario(shape);
  for (int turn = 0; turn < 600; ++turn) {
    const Key key = random_key(random, scenario.keys, 48);
    if (scenario.keys.size() < 20 && !key.empty() && random() % 2 == 0) scenario.insert(key);
    if (!scenario.keys.empty() && random() % 3 == 0) {
      scenario.erase(random() % scenario.keys.size());
    }
    scenario.tree.audit();
    REQUIRE(scenario.tree.size() == static_cast<std::int32_t>(scenario.keys.size()));
    REQUIRE(scenario.tree.snapshots().size() == scenario.keys.size());
    const Key query = random_key(random, scenario.keys, 60);
    scenario.check_match(query, length_of(query) - 1);
    scenario.check_match(query, static_cast<std::int32_t>(random() % 60));
    scenario.check_standing(query);
    scenario.check_on_the_way(query);
    if (!scenario.keys.empty()) scenario.check_standing(scenario.keys.front());
  }
  while (!scenario.keys.empty()) scenario.erase(0);
  scenario.tree.audit();
  CHECK(scenario.pool.all_free());
}

}  // namespace

TEST_SUITE("core/memory/prefix_tree") {
  TEST_CASE("random trees answer as a list of keys does") {
    for (unsigned seed = 1; seed <= 3; ++seed) {
      CAPTURE(seed);
      run({.kinds = {&full}}, seed);
      run({.kinds = {}}, seed);
      run({.kinds = {&full, &window}}, seed);
      run({.kinds = {&full}, .recurrent = false}, seed);
      run({.kinds = {&window}, .recurrent = false}, seed);
      run({.kinds = {&chunked}, .recurrent = false}, seed);
      run({.kinds = {&full, &window, &chunked}, .recurrent = false}, seed);
    }
  }

  TEST_CASE("the whole key is looked up and the answer clamped") {
    Scenario scenario({.kinds = {&full}});
    scenario.insert(key_of("abcd"));
    scenario.insert(key_of("ab"));
    // Only the first three of these tokens may be resumed, but all four match: a key cut to n - 1
    // before the walk would hide that.
    const Lookup found = scenario.tree.look_up(key_of("abcd"), 3, scenario.pool.layout());
    CHECK(found.matched == 4);
    CHECK(found.resumable == 2);
    CHECK(scenario.tree.look_up(key_of("abcde"), 4, scenario.pool.layout()).resumable == 4);
  }

  TEST_CASE("a match changes nothing") {
    Scenario scenario({.kinds = {&full}});
    scenario.insert(key_of("abcdefgh"));
    const PrefixNode* const node = scenario.snapshots.at(key_of("abcdefgh"))->node;
    for (const char* query : {"abc", "abcx", "abcdefghij", "x", ""}) {
      const Key key = key_of(query);
      (void)scenario.tree.look_up(key, length_of(key) - 1, scenario.pool.layout());
      CHECK(node->edge.size() == 8);
      CHECK(node->parent->parent == nullptr);
    }
  }

  TEST_CASE("a position has one snapshot: the older one") {
    Scenario scenario({.kinds = {&full}});
    scenario.insert(key_of("abc"));
    const std::int64_t slots = slots_free(scenario.pool);
    CHECK(scenario.tree.insert(key_of("abc"), checkpoint_at(scenario.pool, 3),
                               SnapshotPlace::branch) == nullptr);
    CHECK(scenario.tree.size() == 1);
    CHECK(slots_free(scenario.pool) == slots);
    CHECK(scenario.snapshots.at(key_of("abc"))->place == SnapshotPlace::turn_end);
  }

  TEST_CASE("a snapshot keeps its address while edges split and merge around it") {
    Scenario scenario({.kinds = {&full}});
    scenario.insert(key_of("abcdef"));
    Snapshot* const snapshot = scenario.snapshots.at(key_of("abcdef"));
    scenario.insert(key_of("abc"));
    scenario.insert(key_of("abxy"));
    scenario.insert(key_of("abcdefgh"));
    CHECK(snapshot->node->value.get() == snapshot);
    CHECK(PrefixTree::key(*snapshot) == key_of("abcdef"));
    for (const char* key : {"abc", "abcdefgh", "abxy"}) {
      scenario.tree.erase(*scenario.snapshots.at(key_of(key)));
    }
    CHECK(snapshot->node->edge == key_of("abcdef"));
    scenario.tree.audit();
  }

  TEST_CASE("thousands of snapshots in one line") {
    Scenario scenario({.kinds = {}, .superblocks = 3000});
    Key key;
    std::vector<Snapshot*> snapshots;
    for (std::int32_t token = 0; token < 5000; ++token) {
      key.push_back(TokenId{token % 7});
      snapshots.push_back(scenario.tree.insert(key, checkpoint_at(scenario.pool, token + 1),
                                               SnapshotPlace::turn_end));
    }
    CHECK(scenario.tree.look_up(key, 4321, scenario.pool.layout()).snapshot == snapshots[4320]);
    for (std::size_t i = 0; i < snapshots.size(); i += 2) scenario.tree.erase(*snapshots[i]);
    scenario.tree.audit();
    CHECK(scenario.tree.look_up(key, 4321, scenario.pool.layout()).resumable == 4320);
  }

  TEST_CASE("keys and checkpoints of other lengths, and a second erase, are bugs of ours") {
    Scenario scenario({.kinds = {&full}});
    CHECK_THROWS_AS(
        scenario.tree.insert(key_of("abc"), checkpoint_at(scenario.pool, 2), SnapshotPlace::branch),
        Error);
    CHECK_THROWS_AS(scenario.tree.insert(Key(), Checkpoint(), SnapshotPlace::branch), Error);
  }
}

}  // namespace prefix_tree_test
