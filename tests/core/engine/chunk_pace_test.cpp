#include "core/engine/chunk_pace.h"

#include <doctest/doctest.h>

namespace chunk_pace_test {

using namespace hyb;
using namespace std::chrono_literals;

namespace {

/// Steps of a machine that takes 50 ms per step and 1 ms per token; the seconds of each.
double step(ChunkPace& pace, std::chrono::nanoseconds time) {
  const std::int32_t tokens = pace.tokens_in(time);
  const double seconds = 0.05 + 0.001 * tokens;
  pace.ran({.tokens = tokens, .seconds = seconds});
  return seconds;
}

}  // namespace

TEST_SUITE("core/engine/chunk_pace") {
  TEST_CASE("chunks grow to the wanted time, and never beyond it") {
    ChunkPace pace;
    CHECK(pace.tokens_in(300ms) == ChunkPace::tokens_at_first);
    double last = 0;
    for (int i = 0; i < 8; ++i) {
      last = step(pace, 300ms);
      CHECK(last <= 0.3);
    }
    CHECK(last > 0.25);
    CHECK(pace.tokens_in(300ms) % 32 == 0);
    CHECK(pace.tokens_in(60ms) < pace.tokens_in(300ms));
  }

  TEST_CASE("where a step alone takes longer than wanted, prompts keep half of their rate") {
    ChunkPace pace;
    for (int i = 0; i < 8; ++i) {
      const std::int32_t tokens = pace.tokens_in(300ms);
      pace.ran({.tokens = tokens, .seconds = 0.4 + 0.001 * tokens});
    }
    CHECK(pace.tokens_in(300ms) >= 384);
    CHECK(pace.tokens_in(300ms) <= 800);
    CHECK(pace.tokens_in(40ms) == ChunkPace::tokens_min);
  }

  TEST_CASE("a slow machine runs a few tokens at least") {
    ChunkPace pace;
    pace.ran({.tokens = 16, .seconds = 100});
    CHECK(pace.tokens_in(300ms) == ChunkPace::tokens_min);
  }

  TEST_CASE("steps that say nothing about prompts do not count") {
    ChunkPace pace;
    pace.ran({.tokens = 1, .seconds = 1});
    pace.ran({.tokens = 100, .single = 2, .seconds = 1});
    pace.ran({.tokens = 100, .seconds = 0});
    CHECK(pace.tokens_in(1s) == ChunkPace::tokens_at_first);
  }
}

}  // namespace chunk_pace_test
