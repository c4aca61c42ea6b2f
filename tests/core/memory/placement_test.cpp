#include "core/memory/placement.h"

#include <doctest/doctest.h>

using namespace hyb;

namespace {

constexpr SnapshotPlace prompt_end = SnapshotPlace::prompt_end;
constexpr SnapshotPlace turn_end = SnapshotPlace::turn_end;

/// So many requests of a workload in which every snapshot of one place is used by the next turn and
/// those of the other never are. Returns how often the useless place was taken.
int serve(Placement& placement, int requests, SnapshotPlace useful) {
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
      Placement placement;
      CHECK(serve(placement, 40, useful) < 20);
      CHECK(serve(placement, 1600, useful) == 100);
      CHECK(placement.wants(useful));
    }
  }

  TEST_CASE("what the template says holds from the first request") {
    Placement change(PlacementPrior::answers_change);
    CHECK(change.wants(prompt_end));
    CHECK_FALSE(change.wants(turn_end));
    Placement stay(PlacementPrior::answers_stay);
    CHECK_FALSE(stay.wants(prompt_end));
    CHECK(stay.wants(turn_end));
    Placement unknown;
    CHECK(unknown.wants(prompt_end));
    CHECK(unknown.wants(turn_end));
  }

  TEST_CASE("a wrong prior and a change of workload are unlearned") {
    Placement placement(PlacementPrior::answers_change);
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
    Placement placement;
    for (int i = 0; i < 100; ++i) {
      placement.created(SnapshotPlace::branch);
      placement.created(SnapshotPlace::message_end);
      CHECK(placement.wants(SnapshotPlace::branch));
      CHECK(placement.wants(SnapshotPlace::message_end));
    }
  }

  TEST_CASE("where neither place is used, both are taken") {
    Placement placement;
    for (int i = 0; i < 200; ++i) {
      REQUIRE(placement.wants(turn_end));
      placement.created(turn_end);
      REQUIRE(placement.wants(prompt_end));
    }
  }

  TEST_CASE("two places that are both used are both wanted") {
    Placement placement;
    for (int i = 0; i < 200; ++i) {
      for (const SnapshotPlace place : {prompt_end, turn_end}) {
        REQUIRE(placement.wants(place));
        placement.created(place);
        if (place == turn_end || i % 3 == 0) placement.used(place, false);
      }
    }
  }

  TEST_CASE("what is continued is a class of its own") {
    Placement placement;
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
    Placement placement;
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
