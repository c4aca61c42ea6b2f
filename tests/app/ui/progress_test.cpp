#include "app/ui/progress.h"

#include <doctest/doctest.h>

#include <chrono>

namespace progress_test {

using namespace hyb::app;
using namespace std::chrono_literals;

TEST_SUITE("app/ui/progress") {
  TEST_CASE("the bar fills up and keeps its width") {
    CHECK(progress_bar(0, 10, 17) == "[>         ]   0%");
    CHECK(progress_bar(5, 10, 17) == "[=====>    ]  50%");
    CHECK(progress_bar(10, 10, 17) == "[==========] 100%");
    for (int done = -5; done <= 20; ++done) CHECK(progress_bar(done, 10, 30).size() == 30);
    CHECK(progress_bar(0, 0, 17) == progress_bar(0, 10, 17));
    CHECK(progress_bar(1, 1, -3).size() == 8);
  }

  TEST_CASE("times are short") {
    CHECK(duration_text(7s + 900ms) == "7 s");
    CHECK(duration_text(185s) == "3 min 05 s");
    CHECK(duration_text(2h + 4min + 59s) == "2 h 04 min");
  }

  TEST_CASE("the time left is at the rate of this run, not of earlier ones") {
    CHECK(time_left_text({.done = 684, .total = 2000, .before = 546}, 2s) == "19 s left");
    CHECK(time_left_text({.done = 500, .total = 1000}, 60s) == "1 min 00 s left");
    CHECK(time_left_text({.done = 546, .total = 2000, .before = 546}, 2s).empty());
    CHECK(time_left_text({.done = 2000, .total = 2000, .before = 546}, 2s).empty());
  }

  TEST_CASE("the bar takes the columns that its figures leave") {
    const ProgressCount count = {.done = 5, .total = 10};
    CHECK(bar_text(count, 3s, "0 failed", 42) == "[=====>    ]  50% 5/10  3 s left  0 failed");
    for (const int columns : {44, 80, 200}) {
      CHECK(bar_text(count, 3s, "0 failed", columns).size() == static_cast<std::size_t>(columns));
    }
    CHECK(bar_text(count, 3s, "0 failed", 10).ends_with("0 failed"));
  }

  TEST_CASE("a stderr that cannot move its cursor gets nothing") {
    Environment environment;
    environment.term = "dumb";
    ProgressLine line(environment);
    CHECK_FALSE(line.is_shown());
  }
}

}  // namespace progress_test
