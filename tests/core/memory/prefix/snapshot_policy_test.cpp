#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/pool/layout.h"
#include "core/memory/prefix/snapshot_policy.h"
#include "tests/support/prefix.h"

namespace snapshot_policy_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const FullAttention full;
const SlidingWindow window(9);

/// A tree whose checkpoints share pages as far as their keys go: each is resumed from the nearest
/// above, or from one that diverges later, as running sequences would.
struct Shared {
  explicit Shared(const ToyShape& shape) : pool(toy_layout(shape)) {}

  Snapshot& insert(const char* text, const char* resumed_from = nullptr) {
    const Key key = key_of(text);
    std::optional<Memory> memory = pool.start();
    if (resumed_from != nullptr) {
      memory = pool.resume(snapshots.at(resumed_from)->checkpoint);
    }
    REQUIRE(memory);
    go_on(*memory, length_of(key) - memory->length());
    Snapshot* const snapshot = tree.insert(key, std::move(*std::move(*memory).final_checkpoint()),
                                           SnapshotPlace::turn_end);
    REQUIRE(snapshot != nullptr);
    snapshots[text] = snapshot;
    return *snapshot;
  }

  /// Bytes that really come free.
  std::size_t erase(const char* text) {
    const auto held = [&] {
      const PoolUsage usage = pool.usage();
      const std::size_t bytes = usage.snapshot_slots.bytes + usage.page_bytes();
      return bytes;
    };
    const std::size_t before = held();
    tree.erase(*snapshots.at(text));
    snapshots.erase(text);
    return before - held();
  }

  MemoryPool pool;
  PrefixTree tree;
  std::map<std::string, Snapshot*> snapshots;
};

}  // namespace

TEST_SUITE("core/memory/appraisal") {
  TEST_CASE("bytes are those that really come free") {
    for (const bool recurrent : {true, false}) {
      for (const auto& kinds :
           std::vector<std::vector<const MemoryKind*>>{{}, {&full}, {&window}, {&full, &window}}) {
        if (kinds.empty() && !recurrent) continue;
        Shared shared({.kinds = kinds, .recurrent = recurrent});
        const SnapshotValue appraisal(shared.pool.layout(), Precision::exact, default_prefill_cost);
        shared.insert("abcdefgh");
        shared.insert("abcdefghijklmnop", "abcdefgh");
        shared.insert("abcdefghijklmnopqrstuvwxyz012345", "abcdefghijklmnop");
        shared.insert("abcdefghABCDEFGH", "abcdefgh");
        for (const char* text : {"abcdefghijklmnop", "abcdefghijklmnopqrstuvwxyz012345", "abcdefgh",
                                 "abcdefghABCDEFGH"}) {
          CAPTURE(text);
          const Neighborhood neighborhood = shared.tree.neighborhood(*shared.snapshots.at(text));
          const std::size_t expected = appraisal.bytes(neighborhood);
          CHECK(shared.erase(text) == expected);
        }
        CHECK(shared.pool.all_free());
      }
    }
  }

  TEST_CASE("seconds are those between it and the one above") {
    Shared shared({.kinds = {&full}});
    const PrefillCost cost{.linear = 1, .square = 0.5};
    const SnapshotValue appraisal(shared.pool.layout(), Precision::exact, cost);
    shared.insert("abcd");
    Snapshot& deep = shared.insert("abcdefgh", "abcd");
    CHECK(appraisal.seconds(shared.tree.neighborhood(deep)) ==
          doctest::Approx(cost.of(8) - cost.of(4)));
    CHECK(appraisal.worth(shared.tree.neighborhood(deep), 0.5) ==
          doctest::Approx(0.5 * (cost.of(8) - cost.of(4)) / (256 + 64)));
    shared.erase("abcd");
    CHECK(appraisal.seconds(shared.tree.neighborhood(deep)) == doctest::Approx(cost.of(8)));
  }

  TEST_CASE("where every position can be resumed, a covered snapshot is worth nothing") {
    Shared shared({.kinds = {&full}, .recurrent = false});
    const SnapshotValue appraisal(shared.pool.layout(), Precision::exact, default_prefill_cost);
    CHECK(appraisal.resumes_anywhere());
    Snapshot& covered = shared.insert("abcdefgh");
    CHECK(appraisal.worth(shared.tree.neighborhood(covered), 1) > 0);
    Snapshot& deep = shared.insert("abcdefghijkl", "abcdefgh");
    CHECK(appraisal.bytes(shared.tree.neighborhood(covered)) == 0);
    CHECK(appraisal.worth(shared.tree.neighborhood(covered), 1) == 0);
    CHECK(appraisal.worth(shared.tree.neighborhood(deep), 1) > 0);
  }

  TEST_CASE("a packed snapshot is that much lighter") {
    Shared shared({.kinds = {&full}});
    const Neighborhood neighborhood{.depth = 8};
    CHECK(SnapshotValue(shared.pool.layout(), Precision::exact, default_prefill_cost)
              .bytes(neighborhood) == 256 + 128);
    CHECK(SnapshotValue(shared.pool.layout(), Precision::int8, default_prefill_cost)
              .bytes(neighborhood) == 64 + 128);
  }
}

namespace {

constexpr SnapshotPlace prompt_end = SnapshotPlace::prompt_end;
constexpr SnapshotPlace turn_end = SnapshotPlace::turn_end;

/// Requests of a workload in which every snapshot of one place is used by the next turn and
/// those of the other never are. Returns how often the useless place was taken.
int serve(SnapshotPolicy& placement, int requests, SnapshotPlace useful) {
  int useless_taken = 0;
  for (int request = 0; request < requests; ++request) {
    for (const SnapshotPlace place : {prompt_end, turn_end}) {
      if (!placement.wants(place)) continue;
      placement.created(place);
      if (place == useful) {
        placement.used(place, false);
      } else {
        ++useless_taken;
      }
    }
  }
  return useless_taken;
}

}  // namespace

TEST_SUITE("core/memory/placement") {
  TEST_CASE("a place that is never used is taken for 1 request in 16") {
    for (const SnapshotPlace useful : {prompt_end, turn_end}) {
      SnapshotPolicy placement;
      CHECK(serve(placement, 40, useful) < 20);
      CHECK(serve(placement, 1600, useful) == 100);
      CHECK(placement.wants(useful));
    }
  }

  TEST_CASE("what the template says holds from the first request") {
    SnapshotPolicy change(PlacementPrior::answers_change);
    CHECK(change.wants(prompt_end));
    CHECK_FALSE(change.wants(turn_end));
    SnapshotPolicy stay(PlacementPrior::answers_stay);
    CHECK_FALSE(stay.wants(prompt_end));
    CHECK(stay.wants(turn_end));
    SnapshotPolicy unknown;
    CHECK(unknown.wants(prompt_end));
    CHECK(unknown.wants(turn_end));
  }

  TEST_CASE("a wrong prior and a change of workload are unlearned") {
    SnapshotPolicy placement(PlacementPrior::answers_change);
    serve(placement, 300, turn_end);
    CHECK(placement.wants(turn_end));
    CHECK(serve(placement, 160, turn_end) <= 10);
    serve(placement, 2000, prompt_end);
    CHECK(placement.wants(prompt_end));
    CHECK(serve(placement, 160, prompt_end) <= 10);
    serve(placement, 2000, turn_end);
    CHECK(serve(placement, 160, turn_end) <= 10);
  }

  TEST_CASE("branch points and ends of messages are always wanted") {
    SnapshotPolicy placement;
    for (int i = 0; i < 100; ++i) {
      placement.created(SnapshotPlace::branch);
      placement.created(SnapshotPlace::message_end);
      CHECK(placement.wants(SnapshotPlace::branch));
      CHECK(placement.wants(SnapshotPlace::message_end));
    }
  }

  TEST_CASE("where neither place is used, both are taken") {
    SnapshotPolicy placement;
    for (int i = 0; i < 200; ++i) {
      REQUIRE(placement.wants(turn_end));
      placement.created(turn_end);
      REQUIRE(placement.wants(prompt_end));
    }
  }

  TEST_CASE("two places that are both used are both wanted") {
    SnapshotPolicy placement;
    for (int i = 0; i < 200; ++i) {
      for (const SnapshotPlace place : {prompt_end, turn_end}) {
        REQUIRE(placement.wants(place));
        placement.created(place);
        if (place == turn_end || i % 3 == 0) placement.used(place, false);
      }
    }
  }

  TEST_CASE("what is continued is a class of its own") {
    SnapshotPolicy placement;
    CHECK(placement.use_probability(turn_end, false) == 1);
    CHECK(placement.use_probability(turn_end, true) == 1);
    for (int i = 0; i < 98; ++i) {  // each used once, by the next turn, and never again
      placement.created(turn_end);
      placement.used(turn_end, false);
    }
    CHECK(placement.use_probability(turn_end, false) == 1);
    CHECK(placement.use_probability(turn_end, true) == doctest::Approx(0.02));
    placement.created(SnapshotPlace::message_end);  // one, used again and again
    placement.used(SnapshotPlace::message_end, false);
    for (int i = 0; i < 97; ++i) placement.used(SnapshotPlace::message_end, true);
    CHECK(placement.use_probability(SnapshotPlace::message_end, true) == doctest::Approx(0.99));
  }

  TEST_CASE("a probability stays one while old experience fades") {
    SnapshotPolicy placement;
    for (int i = 0; i < 5000; ++i) {
      placement.created(turn_end);
      placement.used(turn_end, i % 2 == 0);
      for (const bool before : {false, true}) {
        const double probability = placement.use_probability(turn_end, before);
        REQUIRE(probability > 0);
        REQUIRE(probability <= 1);
      }
    }
  }
}

namespace {

/// The same by looking at all of them.
const Snapshot* smallest(const std::set<const Snapshot*>& snapshots, const Snapshot* keep) {
  const Snapshot* smallest = nullptr;
  for (const Snapshot* snapshot : snapshots) {
    if (snapshot == keep || snapshot->pinned > 0) continue;
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
            eviction.deprioritize(snapshot);
            CHECK(Eviction::is_deprioritized(snapshot));
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

  TEST_CASE("what is deprioritized goes first and raises no level, unless it is used") {
    for (const EvictionRule rule : {EvictionRule::greedy_dual, EvictionRule::lru}) {
      Eviction eviction(rule);
      Snapshot worthless, dear, used;
      eviction.add(worthless, 0);
      eviction.add(dear, 9);
      eviction.add(used, 9);
      eviction.deprioritize(dear);
      eviction.deprioritize(used);
      eviction.use(used, 9);
      CHECK(eviction.victim() == &dear);
      eviction.remove(dear);
      eviction.reinsert(dear, 9);  // it rested meanwhile, and is no better for it
      CHECK(eviction.victim() == &dear);
      eviction.reweigh(3, [](const Snapshot&) { return 50.0; });  // nor by what a second is worth
      CHECK(Eviction::is_deprioritized(dear));
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

  TEST_CASE("what is pinned goes after all others, the last of it first") {
    std::mt19937 random(13);
    for (int round = 0; round < 200; ++round) {
      Eviction eviction(EvictionRule::greedy_dual);
      std::deque<Snapshot> all(1 + random() % 40);
      std::set<const Snapshot*> in;
      std::int32_t pinned = 0;
      for (Snapshot& snapshot : all) {
        eviction.add(snapshot, static_cast<double>(random() % 20));
        in.insert(&snapshot);
        if (random() % 3 == 0) snapshot.pinned = ++pinned;
      }
      const Snapshot* const kept = &all[random() % all.size()];
      while (Snapshot* const victim = eviction.victim(kept)) {
        if (const Snapshot* const expected = smallest(in, kept)) {
          REQUIRE(victim == expected);
        } else {
          for (const Snapshot* other : in) {
            if (other != kept) REQUIRE(victim->pinned >= other->pinned);
          }
        }
        eviction.give_up(*victim);
        in.erase(victim);
      }
      CHECK(in == std::set<const Snapshot*>{kept});
    }
  }

  TEST_CASE("revalued, all rank as if they always had that value") {
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

  TEST_CASE("greedy dual: the level never exceeds a value") {
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

  TEST_CASE("a reinserted snapshot keeps its age under lru, and is the newest under greedy dual") {
    for (const EvictionRule rule : {EvictionRule::greedy_dual, EvictionRule::lru}) {
      Eviction eviction(rule);
      Snapshot sleeper, other, victim;
      eviction.add(sleeper, 2);
      eviction.remove(sleeper);
      eviction.remove(sleeper);  // nothing happens
      eviction.add(victim, 3);
      eviction.give_up(victim);
      eviction.add(other, 1);
      eviction.reinsert(sleeper, 2);
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

}  // namespace snapshot_policy_test
