#include "core/memory/eviction.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "core/base/error.h"

using namespace hyb;

namespace {

/// The same by looking at all of them.
const Snapshot* smallest(const std::set<const Snapshot*>& snapshots, const Snapshot* keep) {
  const Snapshot* smallest = nullptr;
  for (const Snapshot* snapshot : snapshots) {
    if (snapshot == keep || snapshot->awaited > 0) continue;
    const bool before = smallest == nullptr || snapshot->value < smallest->value ||
                        (snapshot->value == smallest->value && snapshot->added < smallest->added);
    if (before) smallest = snapshot;
  }
  return smallest;
}

}  // namespace

TEST_SUITE("core/memory/eviction") {
  TEST_CASE("the victim is the least of all, whatever came before") {
    for (const EvictionRule rule : {EvictionRule::greedy_dual, EvictionRule::lru}) {
      std::mt19937 random(7);
      Eviction eviction(rule);
      std::deque<Snapshot> all(60);
      std::set<const Snapshot*> in;
      double level = 0;
      for (int turn = 0; turn < 5000; ++turn) {
        Snapshot& snapshot = all[random() % all.size()];
        const double worth = static_cast<double>(random() % 20);
        const double expected = eviction.value_of(worth);
        switch (random() % 5) {
          case 0:
            if (snapshot.heap_index >= 0) break;
            eviction.add(snapshot, worth);
            CHECK(snapshot.value == expected);
            in.insert(&snapshot);
            break;
          case 1:
            eviction.use(snapshot, worth);
            CHECK(snapshot.value == expected);
            in.insert(&snapshot);
            break;
          case 2:
            eviction.remove(snapshot);
            in.erase(&snapshot);
            break;
          case 3:
            eviction.devalue(snapshot);
            CHECK(Eviction::is_devalued(snapshot));
            break;
          default:
            Snapshot* const victim = eviction.victim();
            REQUIRE(victim == smallest(in, nullptr));
            if (victim == nullptr) break;
            eviction.give_up(*victim);
            in.erase(victim);
        }
        REQUIRE(eviction.victim(&snapshot) == smallest(in, &snapshot));
        REQUIRE(eviction.size() == in.size());
        REQUIRE(eviction.level() >= level);
        level = eviction.level();
        eviction.audit();
      }
    }
  }

  TEST_CASE("what is devalued goes first and raises no level, unless it is used") {
    for (const EvictionRule rule : {EvictionRule::greedy_dual, EvictionRule::lru}) {
      Eviction eviction(rule);
      Snapshot worthless, dear, used;
      eviction.add(worthless, 0);
      eviction.add(dear, 9);
      eviction.add(used, 9);
      eviction.devalue(dear);
      eviction.devalue(used);
      eviction.use(used, 9);
      CHECK(eviction.victim() == &dear);
      eviction.remove(dear);
      eviction.wake(dear, 9);  // it rested meanwhile, and is no better for it
      CHECK(eviction.victim() == &dear);
      eviction.reweigh(3, [](const Snapshot&) { return 50.0; });  // nor by what a second is worth
      CHECK(Eviction::is_devalued(dear));
      CHECK(eviction.victim() == &dear);
      const double level = eviction.level();
      eviction.give_up(dear);
      CHECK(eviction.level() == level);
      CHECK(eviction.victim() == &worthless);
      eviction.audit();
    }
  }

  TEST_CASE("greedy dual: the level is the value of the last victim, and new ones start there") {
    Eviction eviction(EvictionRule::greedy_dual);
    Snapshot cheap, dear, late;
    eviction.add(cheap, 1);
    eviction.add(dear, 5);
    eviction.give_up(cheap);
    CHECK(eviction.level() == 1);
    eviction.add(late, 2);
    CHECK(late.value == 3);
    CHECK(eviction.victim() == &late);
    eviction.use(late, 2);
    CHECK(late.value == 3);
    eviction.give_up(late);
    CHECK(eviction.victim() == &dear);
    CHECK(eviction.value_of(0) == 3);
  }

  TEST_CASE("what is awaited goes after all others, the last of it first") {
    std::mt19937 random(13);
    for (int round = 0; round < 200; ++round) {
      Eviction eviction(EvictionRule::greedy_dual);
      std::deque<Snapshot> all(1 + random() % 40);
      std::set<const Snapshot*> in;
      std::int32_t awaited = 0;
      for (Snapshot& snapshot : all) {
        eviction.add(snapshot, static_cast<double>(random() % 20));
        in.insert(&snapshot);
        if (random() % 3 == 0) snapshot.awaited = ++awaited;
      }
      const Snapshot* const kept = &all[random() % all.size()];
      while (Snapshot* const victim = eviction.victim(kept)) {
        if (const Snapshot* const expected = smallest(in, kept)) {
          REQUIRE(victim == expected);
        } else {
          for (const Snapshot* other : in) {
            if (other != kept) REQUIRE(victim->awaited >= other->awaited);
          }
        }
        eviction.give_up(*victim);
        in.erase(victim);
      }
      CHECK(in == std::set<const Snapshot*>{kept});
    }
  }

  TEST_CASE("weighed anew, all stand as if they had always been worth that") {
    // Twice the same history: once with worths that are known late, once with the right ones.
    std::mt19937 random(11);
    Eviction late(EvictionRule::greedy_dual), right(EvictionRule::greedy_dual);
    std::deque<Snapshot> guessed(50), known(50);
    const auto place_of = [&](const Snapshot& snapshot) {
      std::size_t place = 0;
      while (&guessed[place] != &snapshot) ++place;
      return place;
    };
    for (std::size_t i = 0; i < 50; ++i) {
      const auto worth = static_cast<double>(1 + random() % 100);
      late.add(guessed[i], 4 * worth);
      right.add(known[i], worth);
      if (i % 5 != 4) continue;
      Snapshot* const victim = late.victim();
      late.give_up(*victim);
      REQUIRE(right.victim() == &known[place_of(*victim)]);
      right.give_up(*right.victim());
    }
    // A quarter of the time for everything, and then the odd ones twice as long.
    const auto odd = [&](std::size_t place) { return place % 2 == 1; };
    late.reweigh(0.25, [&](const Snapshot& snapshot) {
      const std::size_t place = place_of(snapshot);
      return known[place].worth * (odd(place) ? 2 : 1);
    });
    late.audit();
    CHECK(late.level() == doctest::Approx(right.level()));
    for (std::size_t i = 0; i < 50; ++i) {
      if (guessed[i].heap_index < 0) continue;
      const double more = odd(i) ? known[i].worth : 0;
      CHECK(guessed[i].value == doctest::Approx(known[i].value + more));
    }
    Eviction recency(EvictionRule::lru);
    Snapshot first, second;
    recency.add(first, 1);
    recency.add(second, 1);
    recency.reweigh(10, [&](const Snapshot& snapshot) { return &snapshot == &first ? 9.0 : 1.0; });
    CHECK(recency.victim() == &first);
  }

  TEST_CASE("greedy dual: what is dear but never used goes in the end") {
    Eviction eviction(EvictionRule::greedy_dual);
    Snapshot dear;
    eviction.add(dear, 50);
    std::deque<Snapshot> cheap(200);
    int survived = 0;
    for (Snapshot& snapshot : cheap) {
      eviction.add(snapshot, 1);
      Snapshot* const victim = eviction.victim();
      eviction.give_up(*victim);
      if (victim == &dear) break;
      ++survived;
    }
    CHECK(survived >= 49);
    CHECK(survived <= 51);
  }

  TEST_CASE("greedy dual: newcomers that are refused raise the level too") {
    Eviction eviction(EvictionRule::greedy_dual);
    Snapshot old;
    eviction.add(old, 10);
    int refused = 0;
    while (eviction.value_of(3) <= eviction.victim()->value) {
      eviction.refuse(3);
      ++refused;
    }
    CHECK(refused == 3);
    CHECK(eviction.level() == 9);
  }

  TEST_CASE("greedy dual: the level passes over nobody's value") {
    Eviction eviction(EvictionRule::greedy_dual);
    Snapshot kept, other;
    eviction.add(kept, 1);
    eviction.add(other, 5);
    eviction.give_up(*eviction.victim(&kept));
    CHECK(eviction.level() == 5);
    CHECK(eviction.victim() == &kept);
    eviction.give_up(kept);
    CHECK(eviction.level() == 5);
  }

  TEST_CASE("lru: the one that was not used for the longest time") {
    Eviction eviction(EvictionRule::lru);
    Snapshot a, b, c;
    eviction.add(a, 100);
    eviction.add(b, 1);
    eviction.add(c, 50);
    eviction.use(a, 0);
    CHECK(eviction.victim() == &b);
    CHECK(eviction.victim(&b) == &c);
    eviction.give_up(b);
    CHECK(eviction.level() == 0);
    eviction.refuse(1);
    CHECK(eviction.level() == 0);
  }

  TEST_CASE("what wakes is as old as it was under lru, and as new as now under greedy dual") {
    for (const EvictionRule rule : {EvictionRule::greedy_dual, EvictionRule::lru}) {
      Eviction eviction(rule);
      Snapshot sleeper, other, victim;
      eviction.add(sleeper, 2);
      eviction.remove(sleeper);
      eviction.remove(sleeper);  // nothing happens
      eviction.add(victim, 3);
      eviction.give_up(victim);
      eviction.add(other, 1);
      eviction.wake(sleeper, 2);
      CHECK((eviction.victim() == &sleeper) == (rule == EvictionRule::lru));
    }
  }

  TEST_CASE("nothing to evict") {
    Eviction eviction(EvictionRule::greedy_dual);
    Snapshot only;
    CHECK(eviction.victim() == nullptr);
    eviction.add(only, 1);
    CHECK(eviction.victim(&only) == nullptr);
    CHECK_THROWS_AS(eviction.add(only, 1), Error);
  }
}
