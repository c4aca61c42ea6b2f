#include <random>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/prefix/prefix_cache.h"
#include "tests/support/free_units.h"
#include "tests/support/prefix.h"
#include "tests/support/toy_layout.h"

namespace prefix_cache_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

Key repeated(std::int32_t token, std::size_t count) { return Key(count, TokenId{token}); }

}  // namespace

TEST_SUITE("core/memory/prefix_cache") {
  TEST_CASE("a second turn runs its new text only") {
    for (const Precision precision : {Precision::exact, Precision::int8}) {
      PrefixServer server({.kinds = {&full, &window}}, {.precision = precision});
      CHECK(server.serve(key_of("hello"), key_of("there")) == 0);
      CHECK(server.serve(key_of("hellothere, how"), key_of("fine")) == 10);
      CHECK(server.cache.stats().hits == 1);
      CHECK(server.cache.stats().tokens_resumed == 10);
    }
  }

  TEST_CASE("the same prompt again runs one token") {
    PrefixServer server({.kinds = {&full}});
    server.serve(key_of("a prompt"), key_of("yes"));
    CHECK(server.serve(key_of("a prompt"), key_of("no")) == 7);
    CHECK(server.serve(key_of("a promptyes"), {}) == 7);  // one snapshot is at its very end
  }

  TEST_CASE("a shared prefix hits on its third use, and on its second where a message ends") {
    PrefixServer server({.kinds = {&full}});
    server.serve(key_of("system. one"), key_of("x"));
    CHECK(server.serve(key_of("system. two"), key_of("x")) == 0);
    CHECK(server.serve(key_of("system. three"), key_of("x")) == 8);
    CHECK(server.serve(key_of("system. tree"), key_of("x")) == 9);  // since "system. three"

    PrefixServer told({.kinds = {&full}});
    told.serve(key_of("system. one"), key_of("x"), {7});
    CHECK(told.serve(key_of("system. two"), key_of("x"), {7}) == 7);
  }

  TEST_CASE("cuts: in order, each once, none where nothing is won") {
    PrefixServer server({.kinds = {&full}});
    const Key prompt = key_of("0123456789");
    const std::vector<std::int32_t> ends = {8, 3, 0, 10, 99, 9, -1};
    std::vector<Cut> cuts = server.cache.cuts({.matched = 5, .resumable = 3}, prompt, ends);
    REQUIRE(cuts.size() == 3);
    CHECK(cuts[0].length == 5);
    CHECK(cuts[0].place == SnapshotPlace::branch);
    CHECK(cuts[1].length == 8);
    CHECK(cuts[1].place == SnapshotPlace::message_end);
    CHECK(cuts[2].length == 9);
    CHECK(cuts[2].place == SnapshotPlace::message_end);
    cuts = server.cache.cuts({.matched = 10, .resumable = 4}, prompt, {});
    REQUIRE(cuts.size() == 1);
    CHECK(cuts[0].length == 9);
    CHECK(cuts[0].place == SnapshotPlace::branch);
    CHECK(server.cache.cuts({.matched = 9, .resumable = 9}, prompt, ends).empty());
    CHECK(server.cache.cuts({}, key_of("x"), ends).empty());

    PrefixServer attention({.kinds = {&full}, .recurrent = false});
    CHECK(attention.cache.cuts({.matched = 5, .resumable = 3}, prompt, ends).empty());
  }

  TEST_CASE("a branch is found when all that the first prompt left is gone") {
    for (const std::int64_t seen_tokens_max : {0, 1000}) {
      PrefixServer server({.kinds = {&full}}, {.seen_tokens_max = seen_tokens_max});
      server.serve(key_of("examples. one"), key_of("x"));
      while (server.cache.evict()) {
      }
      CHECK(server.serve(key_of("examples. two"), key_of("x")) == 0);
      CHECK(server.serve(key_of("examples. six"), key_of("x")) == (seen_tokens_max > 0 ? 10 : 0));
    }
  }

  TEST_CASE("a branch that wins a few tokens is not worth a step") {
    MemoryPool pool(toy_layout({.kinds = {&full}}));
    PrefixCache cache(pool, {.placement = PlacementPrior::answers_stay, .branch_tokens_min = 16});
    const Key prompt = repeated(1, 40);
    CHECK(cache.cuts({.matched = 25, .resumable = 10}, prompt, {}).empty());
    CHECK(cache.cuts({.matched = 26, .resumable = 10}, prompt, {}).size() == 1);
  }

  TEST_CASE("only the snapshot that was used is refreshed") {
    // A line of two turns, the first snapshot above the second; then one of another line.
    PrefixServer server({.kinds = {}, .superblocks = 2},
                        {.eviction = EvictionRule::lru, .placement = PlacementPrior::answers_stay});
    server.serve(key_of("aa"), key_of("bb"));
    server.serve(key_of("aabbcc"), key_of("dd"));
    server.serve(key_of("xx"), key_of("yy"));
    // Using the deeper one leaves the one above it the oldest: it goes, the other line stays.
    CHECK(server.serve(key_of("aabbccddee"), key_of("ff")) == 8);
    REQUIRE(server.cache.evict());
    CHECK(server.cache.look_up(key_of("aabbc")).resumable == 0);
    CHECK(server.cache.look_up(key_of("xxyyz")).resumable == 4);
    CHECK(server.cache.look_up(key_of("aabbccdde")).resumable == 8);
  }

  TEST_CASE("looking up refreshes and counts nothing") {
    PrefixServer server({.kinds = {&full}}, {.eviction = EvictionRule::lru});
    server.serve(key_of("first"), key_of("one"));
    server.serve(key_of("second"), key_of("two"));
    const PrefixCacheStats before = server.cache.stats();
    for (int i = 0; i < 5; ++i) CHECK(server.cache.look_up(key_of("firstone!")).resumable == 8);
    CHECK(server.cache.stats().lookups == before.lookups);
    // Of the first turn come the prompt's end, then the answer's.
    REQUIRE(server.cache.evict());
    REQUIRE(server.cache.evict());
    CHECK(server.cache.look_up(key_of("firstone!")).resumable == 0);
    CHECK(server.cache.look_up(key_of("secondtwo!")).resumable == 9);
  }

  TEST_CASE("a new snapshot evicts what is worth less, and nothing else") {
    // Two slots: one for the running sequence, one for a snapshot.
    PrefixServer server({.kinds = {}, .superblocks = 1});
    const auto published = [&](std::int32_t length) {
      Memory memory = ran(server.pool, length);
      return server.cache.publish(repeated(length, 1000), memory, SnapshotPlace::branch);
    };
    CHECK(published(10));
    CHECK_FALSE(published(5));
    CHECK(server.cache.stats().refused == 1);
    CHECK(server.cache.stats().evicted == 0);
    CHECK(published(20));
    CHECK(server.cache.stats().evicted == 1);
    CHECK(server.cache.look_up(repeated(20, 21)).resumable == 20);
    // Refusals raise the level: what comes again and again gets in at last.
    int refusals = 0;
    while (!published(5)) ++refusals;
    CHECK(refusals >= 1);
    CHECK(refusals <= 4);
  }

  TEST_CASE("the snapshot that a new one continues is never its victim") {
    PrefixServer server({.kinds = {}, .superblocks = 1}, {.eviction = EvictionRule::lru});
    Memory memory = ran(server.pool, 4);
    const Key key = key_of("abcdefgh");
    REQUIRE(server.cache.publish(key, memory, SnapshotPlace::branch));
    go_on(memory, 4);
    CHECK_FALSE(server.cache.publish(key, memory, SnapshotPlace::branch));
    CHECK(server.cache.look_up(key).resumable == 4);
  }

  TEST_CASE(
      "a continued snapshot is evicted before its successor, and is refreshed when that is gone") {
    PrefixServer server({.kinds = {}, .superblocks = 4},
                        {.placement = PlacementPrior::answers_stay});
    // The ends of turns that nothing came of are used, those that were continued are not.
    for (int session = 0; session < 20; ++session) {
      Key line = {TokenId{100 + session}};
      for (int turn = 0; turn < 4; ++turn) {
        line.insert(line.end(), 4, TokenId{turn});
        server.serve(line, {TokenId{9}});
        line.push_back(TokenId{9});
      }
    }
    server.cache.clear();
    server.serve(key_of("aaaaaaaa"), key_of("bb"));
    server.serve(key_of("aaaaaaaabbcc"), key_of("dd"));
    const auto line = server.cache.tree().on_the_way(key_of("aaaaaaaabbccdd"));
    REQUIRE(line.size() == 2);
    CHECK(line[0]->continued);
    CHECK_FALSE(line[1]->continued);
    CHECK(line[0]->value < line[1]->value);
    while (server.cache.tree().size() > 1) REQUIRE(server.cache.evict(line[0]));
    CHECK(line[0]->used);
    CHECK_FALSE(line[0]->continued);
  }

  TEST_CASE(
      "where attention costs the square, few tokens deep down are worth more than many above") {
    for (const bool is_square : {false, true}) {
      CAPTURE(is_square);
      PrefixServer server({.kinds = {&full}});
      const Key line = repeated(1, 100), deep = repeated(1, 120), shallow = repeated(2, 80);
      for (const Key* key : {&line, &deep, &shallow}) {
        Memory memory = *server.cache.resume(server.cache.look_up(*key));
        REQUIRE(server.advance(memory, length_of(*key)));
        REQUIRE(server.cache.publish_final(*key, std::move(memory)));
      }
      if (is_square) {
        server.cache.set_cost({.linear = 1e-6, .square = 1e-4});
      }
      server.cache.audit();
      REQUIRE(server.cache.evict());
      CHECK(server.cache.look_up(deep).matched == (is_square ? 120 : 100));
      CHECK(server.cache.look_up(shallow).matched == (is_square ? 0 : 80));
    }
  }

  TEST_CASE("nothing is published twice, empty, or when it is disabled") {
    PrefixServer server({.kinds = {&full}});
    Memory fresh = *server.pool.start();
    CHECK_FALSE(server.cache.publish(Key(), fresh, SnapshotPlace::branch));
    Memory memory = ran(server.pool, 4);
    CHECK(server.cache.publish(key_of("abcd"), memory, SnapshotPlace::branch));
    CHECK_FALSE(server.cache.publish(key_of("abcd"), memory, SnapshotPlace::branch));
    CHECK_FALSE(server.cache.publish_final(key_of("abcd"), std::move(memory)));
    CHECK_THROWS_AS(server.cache.publish_final(key_of("ab"), ran(server.pool, 3)), Error);

    PrefixServer disabled({.kinds = {&full}}, {.enabled = false});
    CHECK(disabled.serve(key_of("abc"), key_of("def")) == 0);
    CHECK(disabled.serve(key_of("abcdef"), key_of("def")) == 0);
    CHECK(disabled.cache.tree().size() == 0);
    CHECK(disabled.pool.all_free());
  }

  TEST_CASE("what is pinned is given up last, and no longer when others are pinned") {
    PrefixServer server({.kinds = {&full}});
    const std::vector<Key> keys = {repeated(1, 20), repeated(2, 30), repeated(3, 40)};
    for (const Key& key : keys) server.serve(key, {});
    const auto snapshot_of = [&](std::size_t i) {
      Key longer = keys[i];
      longer.push_back(TokenId{9});
      return server.cache.look_up(longer).snapshot;
    };
    const std::vector<Snapshot*> first = {snapshot_of(0), snapshot_of(1), snapshot_of(0)};
    server.cache.pin(first);
    CHECK(first[0]->pinned == 1);
    CHECK(first[1]->pinned == 2);
    server.cache.pin(std::vector<Snapshot*>{first[1]});
    CHECK(first[0]->pinned == 0);
    const std::int32_t all = server.cache.tree().size();
    for (std::int32_t i = 0; i < all - 1; ++i) REQUIRE(server.cache.evict());
    CHECK(snapshot_of(1) == first[1]);
    CHECK(server.cache.evict());
    CHECK_FALSE(server.cache.evict());
    server.cache.pin({});
  }

  TEST_CASE("without recurrent layers every position of a match is resumed, nothing is cut") {
    PrefixServer server({.kinds = {&full}, .recurrent = false});
    server.serve(key_of("abcdefghijkl"), key_of("mnop"));
    CHECK(server.cache.tree().size() == 1);
    CHECK(server.serve(key_of("abcdefgX"), key_of("y")) == 7);
    CHECK(server.serve(key_of("abcdefghijkl"), key_of("")) == 11);  // covered: not published
    CHECK(server.cache.tree().size() == 2);
  }

  TEST_CASE("without recurrent layers a line of turns is given up from its end") {
    for (const EvictionRule rule : {EvictionRule::greedy_dual, EvictionRule::lru}) {
      PrefixServer server({.kinds = {&full}, .recurrent = false}, {.eviction = rule});
      Key line;
      for (int turn = 0; turn < 4; ++turn) {
        for (int i = 0; i < 8; ++i) line.push_back(TokenId{turn});
        server.serve(line, {});
      }
      line.push_back(TokenId{9});
      for (std::int32_t length = 32; length > 0; length -= 8) {
        CHECK(server.cache.look_up(line).resumable == length);
        const std::int64_t free = pages_free(server.pool);
        REQUIRE(server.cache.evict());
        server.cache.audit();
        CHECK(pages_free(server.pool) == free + 2);
      }
      CHECK_FALSE(server.cache.evict());
      CHECK(server.pool.all_free());
    }
  }

  TEST_CASE("the listener gets key and snapshot before an eviction, and nothing from clear()") {
    PrefixServer server({.kinds = {&full}}, {.placement = PlacementPrior::answers_stay});
    std::vector<Key> heard;
    server.cache.on_evict([&](std::span<const TokenId> key, const Snapshot& snapshot) {
      CHECK(snapshot.checkpoint.length() == static_cast<std::int32_t>(key.size()));
      heard.emplace_back(key.begin(), key.end());
    });
    server.serve(key_of("ab"), key_of("cd"));
    server.serve(key_of("abcdef"), key_of("gh"));
    REQUIRE(server.cache.evict());
    REQUIRE(server.cache.evict());
    CHECK(heard == std::vector<Key>{key_of("abcd"), key_of("abcdefgh")});
    server.serve(key_of("ab"), key_of("cd"));
    server.cache.clear();
    server.cache.audit();
    CHECK(heard.size() == 2);
    CHECK(server.cache.tree().size() == 0);
    CHECK(server.pool.all_free());
  }

  TEST_CASE("a checkpoint from elsewhere is found like any other") {
    PrefixServer server({.kinds = {&full}});
    std::optional<Checkpoint> allocate_empty = server.pool.allocate_empty(6, Precision::exact);
    REQUIRE(allocate_empty);
    CHECK(
        server.cache.insert(key_of("abcdef"), std::move(*allocate_empty), SnapshotPlace::turn_end));
    CHECK(server.cache.look_up(key_of("abcdefg")).resumable == 6);
    allocate_empty = server.pool.allocate_empty(6, Precision::exact);
    CHECK_FALSE(
        server.cache.insert(key_of("abcdef"), std::move(*allocate_empty), SnapshotPlace::branch));
    server.cache.clear();
    CHECK(server.pool.all_free());
  }

  TEST_CASE("random requests over memory so small that all is evicted all the time") {
    struct Model {
      std::vector<const MemoryKind*> kinds;
      bool recurrent;
    };
    const std::vector<Model> models = {{{&full}, true},
                                       {{}, true},
                                       {{&full, &window}, true},
                                       {{&full}, false},
                                       {{&window}, false},
                                       {{&full, &chunked}, false},
                                       {{&full, &window, &chunked}, true}};
    std::int64_t hits = 0, evicted = 0;
    for (std::size_t model = 0; model < models.size(); ++model) {
      for (const Precision precision : {Precision::exact, Precision::int8}) {
        for (const EvictionRule rule : {EvictionRule::greedy_dual, EvictionRule::lru}) {
          CAPTURE(model);
          PrefixServer server({models[model].kinds, models[model].recurrent, 12},
                              {.precision = precision, .eviction = rule});
          std::mt19937 random(static_cast<unsigned>(model));
          std::vector<Key> keys;
          for (int request = 0; request < 150; ++request) {
            Key prompt = random_key(random, keys, 60);
            if (prompt.empty()) prompt.push_back(TokenId{0});
            const Key answer = random_key(random, {}, 10);
            const std::int32_t resumed =
                server.serve(prompt, answer, {static_cast<std::int32_t>(random() % prompt.size())});
            if (request % 40 == 0) {
              server.cache.set_cost(
                  {.linear = 1e-3 * (1 + request), .square = 1e-4 * (request % 80)});
            }
            REQUIRE(resumed >= 0);
            REQUIRE(resumed < length_of(prompt));
            prompt.insert(prompt.end(), answer.begin(), answer.end());
            keys.push_back(prompt);
            if (keys.size() > 20) keys.erase(keys.begin());
          }
          hits += server.cache.stats().hits;
          evicted += server.cache.stats().evicted;
          while (server.cache.evict()) {
          }
          CHECK(server.pool.all_free());
        }
      }
    }
    CHECK(hits > 500);
    CHECK(evicted > 500);
  }

  TEST_CASE("of full pages that two sequences ran at once one is left when both have published") {
    for (const bool is_exact : {true, false}) {
      PrefixServer server({.kinds = {&full, &window}}, {.pages_are_exact = is_exact});
      const Key one = repeated(1, 22);
      Key two = repeated(1, 18);
      two.resize(22, TokenId{2});
      Memory first = *server.pool.start(), second = *server.pool.start();
      for (Memory* memory : {&first, &second}) REQUIRE(server.advance(*memory, 22));
      CHECK(server.cache.publish(one, first, SnapshotPlace::branch));
      const std::int64_t free = pages_free(server.pool, 0);
      CHECK(server.cache.publish(two, second, SnapshotPlace::branch));
      // Pages 0-3 of the one group; of the other, whose window is 9, pages 0-2 have fallen out.
      CHECK(server.cache.stats().pages_merged == (is_exact ? 5 : 0));
      CHECK(pages_free(server.pool, 0) - free == (is_exact ? 4 : 0));
      for (std::size_t page = 0; page < 6; ++page) {
        const bool is_same = first.tables()[0][page] == second.tables()[0][page];
        CHECK(is_same == (is_exact && page < 4));
      }
      const std::vector<const Memory*> memories{&first, &second};
      server.pool.audit(memories, server.cache.checkpoints());
      // At the very same place nothing is published, and the pages are shared all the same.
      Memory third = *server.pool.start();
      REQUIRE(server.advance(third, 22));
      CHECK_FALSE(server.cache.publish(one, third, SnapshotPlace::branch));
      CHECK((third.tables()[0][4] == first.tables()[0][4]) == is_exact);
      CHECK(third.tables()[0][5] != first.tables()[0][5]);  // not full
    }
  }

  TEST_CASE("once a snapshot is int8 no pages are taken for equal") {
    PrefixServer server({.kinds = {&full}}, {.precision = Precision::int8});
    Memory first = *server.pool.start(), second = *server.pool.start();
    for (Memory* memory : {&first, &second}) REQUIRE(server.advance(*memory, 22));
    CHECK(server.cache.publish(repeated(1, 22), first, SnapshotPlace::branch));
    CHECK_FALSE(server.cache.publish(repeated(1, 22), second, SnapshotPlace::branch));
    CHECK(server.cache.stats().pages_merged == 0);
  }
}

TEST_SUITE("core/memory/planned_prefixes") {
  TEST_CASE("what nothing to come needs goes first, unheard, unless it is used") {
    for (const EvictionRule rule : {EvictionRule::greedy_dual, EvictionRule::lru}) {
      PrefixServer server({.kinds = {&full}},
                          {.eviction = rule, .placement = PlacementPrior::answers_stay});
      int heard = 0;
      server.cache.on_evict([&](std::span<const TokenId>, const Snapshot&) { ++heard; });
      server.serve(key_of("group. one"), key_of("x"), {7});
      server.serve(key_of("group. two"), key_of("x"), {7});
      server.serve(key_of("others"), key_of("y"));
      server.cache.deprioritize(key_of("group. two"), 7);  // what is shared stays
      CHECK(server.serve(key_of("group. six"), key_of("x")) == 7);
      server.cache.deprioritize(key_of("group. six"), 3);
      server.cache.audit();
      REQUIRE(server.cache.evict());
      CHECK(heard == 0);
      CHECK(server.cache.look_up(key_of("group. new")).resumable == 0);

      server.serve(key_of("again. one"), key_of("x"), {7});
      server.cache.deprioritize(key_of("again. one"), 0);
      CHECK(server.serve(key_of("again. two"), key_of("x")) == 7);
      while (heard == 0) REQUIRE(server.cache.evict());
      CHECK(server.cache.look_up(key_of("again. six")).resumable == 7);
    }
  }

  TEST_CASE("cuts of a plan: those that win enough, and no others") {
    PrefixServer server({.kinds = {&full}});
    const Key prompt = key_of("0123456789");
    const std::vector<std::int32_t> planned = {3, 5, 8, 10};
    const std::vector<Cut> cuts =
        server.cache.cuts_at({.matched = 6, .resumable = 3}, prompt, planned);
    REQUIRE(cuts.size() == 2);
    CHECK(cuts[0].length == 5);
    CHECK(cuts[1].length == 8);
    MemoryPool pool(toy_layout({.kinds = {&full}}));
    PrefixCache sparing(pool, {.branch_tokens_min = 4});
    CHECK(sparing.cuts_at({.matched = 3, .resumable = 3}, prompt, planned).size() == 1);
    PrefixCache off(pool, {.enabled = false});
    CHECK(off.cuts_at({}, prompt, planned).empty());
  }
}

}  // namespace prefix_cache_test
