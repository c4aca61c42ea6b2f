#include "core/memory/prefix/cuts.h"

#include <doctest/doctest.h>

namespace cuts_test {

using namespace hyb;

TEST_SUITE("core/memory/prefix/cuts") {
  TEST_CASE("cuts are in order, and the first one of a length stays") {
    Cuts cuts({{.length = 3, .place = SnapshotPlace::message_end},
               {.length = 7, .place = SnapshotPlace::prompt_end}});
    cuts.add({.length = 7, .place = SnapshotPlace::branch});
    cuts.add({.length = 5, .place = SnapshotPlace::branch});
    cuts.add({.length = 9, .place = SnapshotPlace::branch});
    CHECK(cuts.next(0, 20) == 3);
    CHECK(cuts.next(3, 20) == 5);
    CHECK(cuts.next(5, 20) == 7);
    CHECK(cuts.next(7, 20) == 9);
    CHECK(cuts.next(9, 20) == 20);
    CHECK(cuts.contains(5));
    CHECK_FALSE(cuts.contains(4));
    CHECK_FALSE(cuts.contains(10));
    CHECK(cuts.take(7) == SnapshotPlace::prompt_end);
    CHECK(cuts.next(0, 20) == 9);
  }

  TEST_CASE("those that were passed are dropped, and those ahead stay") {
    Cuts cuts({{.length = 3, .place = SnapshotPlace::message_end},
               {.length = 7, .place = SnapshotPlace::prompt_end}});
    CHECK_FALSE(cuts.take(2));
    CHECK(cuts.next(0, 20) == 3);
    CHECK_FALSE(cuts.take(4));
    CHECK(cuts.next(0, 20) == 7);
    CHECK(cuts.take(7) == SnapshotPlace::prompt_end);
    CHECK_FALSE(cuts.take(7));
    CHECK_FALSE(Cuts().take(0));
  }
}

}  // namespace cuts_test
