#include <doctest/doctest.h>

#include <deque>
#include <random>
#include <string>

#include "core/memory/prefix/prefix_cache.h"
#include "tests/perf/nemotron_layout.h"
#include "tests/perf/timing.h"
#include "tests/support/prefix.h"

namespace prefix_cache_perf {

using namespace hyb;
using namespace hyb::perf;
using namespace hyb::testing;

namespace {

Key random_tokens(std::mt19937& random, std::size_t count) {
  Key key(count);
  for (TokenId& token : key) token = TokenId{static_cast<std::int32_t>(random() % 130000)};
  return key;
}

/// A line of 128 turns of 256 tokens, with another turn beside each, among 2,000 other lines.
struct LongLine {
  LongLine() : pool(nemotron_layout(12000)), cache(pool, {}) {
    std::mt19937 random(1);
    line = random_tokens(random, 32768);
    for (std::int32_t length = 256; length <= 32768; length += 256) {
      const auto begin = line.begin();
      publish(Key(begin, begin + length));
      Key beside(begin, begin + length - 64);
      const Key other = random_tokens(random, 64);
      beside.insert(beside.end(), other.begin(), other.end());
      publish(beside);
      for (int i = 0; i < 8; ++i) publish(random_tokens(random, 200));
    }
  }

  void publish(const Key& key) {
    const Lookup lookup = cache.look_up(key);
    Memory memory = *cache.resume(lookup);
    REQUIRE(memory.reserve(length_of(key) - memory.length()));
    memory.keep(length_of(key) - memory.length());
    REQUIRE(cache.publish_final(key, std::move(memory)));
    (void)pool.take_orders();
  }

  MemoryPool pool;
  PrefixCache cache;
  Key line;
};

}  // namespace

TEST_SUITE("perf/prefix_cache") {
  TEST_CASE("a prefix match of 32k tokens") {
    LongLine tree;
    CacheFlush flush;
    std::int32_t nodes = 0;
    for (const PrefixNode* node = tree.cache.look_up(tree.line).snapshot->node;
         node->parent != nullptr; node = node->parent) {
      ++nodes;
    }
    std::vector<double> cold, warm;
    for (int i = 0; i < 40; ++i) {
      REQUIRE(flush() > 0);
      Lookup lookup;
      cold.push_back(nanoseconds([&] { lookup = tree.cache.look_up(tree.line); }));
      REQUIRE(lookup.matched == 32768);
      REQUIRE(lookup.resumable == 32512);
      warm.push_back(nanoseconds([&] { lookup = tree.cache.look_up(tree.line); }));
    }
    report(("match of 32k tokens over " + std::to_string(nodes) + " nodes, caches cold").c_str(),
           median(cold) / 1000, "us");
    report("the same, slowest of 40", *std::max_element(cold.begin(), cold.end()) / 1000, "us");
    report("the same, caches warm", median(warm) / 1000, "us");
  }

  TEST_CASE("resume and publish at 32k tokens") {
    LongLine tree;
    std::vector<double> resume, publish;
    for (int i = 0; i < 200; ++i) {
      const Lookup lookup = tree.cache.look_up(tree.line);
      std::optional<Memory> memory;
      resume.push_back(nanoseconds([&] { memory = tree.cache.resume(lookup); }));
      REQUIRE(memory);
      Key key(tree.line.begin(), tree.line.begin() + lookup.resumable);
      key.push_back(TokenId{i});
      REQUIRE(memory->reserve(2));
      memory->keep(1);
      publish.push_back(
          nanoseconds([&] { REQUIRE(tree.cache.publish(key, *memory, SnapshotPlace::branch)); }));
      (void)tree.pool.take_orders();
    }
    report("resume at 32k tokens", median(resume) / 1000, "us");
    report("publish at 32k tokens", median(publish) / 1000, "us");
  }

  TEST_CASE("eviction") {
    for (const std::int32_t snapshots : {1000, 10000, 100000}) {
      std::mt19937 random(2);
      MemoryPool pool(nemotron_layout(snapshots + snapshots / 100 + 10));
      PrefixCache cache(pool, {});
      std::vector<Key> keys;
      for (std::int32_t i = 0; i < snapshots; ++i) {
        Key key = keys.empty() || i % 3 == 0 ? Key() : keys[random() % keys.size()];
        const Key more = random_tokens(random, 20 + random() % 40);
        key.insert(key.end(), more.begin(), more.end());
        if (key.size() < 100) keys.push_back(key);
        Memory memory = *cache.resume(cache.look_up(key));
        REQUIRE(memory.reserve(length_of(key) - memory.length()));
        memory.keep(length_of(key) - memory.length());
        REQUIRE(cache.publish_final(key, std::move(memory)));
        (void)pool.take_orders();
      }
      REQUIRE(cache.tree().size() > snapshots / 2);
      const std::int32_t count = cache.tree().size() / 2;
      const double all = nanoseconds([&] {
        for (std::int32_t i = 0; i < count; ++i) cache.evict();
      });
      report(("evict one of " + std::to_string(2 * count) + " snapshots and give its memory back")
                 .c_str(),
             all / count, "ns");
    }
  }

  TEST_CASE("the eviction heap alone") {
    for (const std::size_t snapshots : {1000U, 10000U, 100000U}) {
      std::mt19937 random(3);
      std::deque<Snapshot> all(snapshots);
      Eviction eviction(EvictionRule::greedy_dual);
      for (Snapshot& snapshot : all) eviction.add(snapshot, static_cast<double>(random() % 1000));
      const int count = 100000;
      const double nanos = nanoseconds([&] {
        for (int i = 0; i < count; ++i) {
          Snapshot* const victim = eviction.victim();
          eviction.give_up(*victim);
          eviction.add(*victim, static_cast<double>(random() % 1000));
        }
      });
      report(("heap of " + std::to_string(snapshots) + ": out with the least, in with another")
                 .c_str(),
             nanos / count, "ns");
    }
  }
}

}  // namespace prefix_cache_perf
