#include "core/memory/resumable.h"

#include <doctest/doctest.h>

#include <random>

#include "core/memory/kind.h"
#include "tests/support/prefix_keys.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

/// Keeps the first page and the last ones: what a list of kinds as ranges of positions would miss.
class Sinks final : public MemoryKind {
 public:
  std::string_view name() const override { return "sinks"; }
  bool needs(PositionRange positions, std::int32_t length) const override {
    if (positions.first < 4 && length > positions.first) return true;
    return window_.needs(positions, length);
  }

 private:
  SlidingWindow window_{6};
};

const FullAttention full;
const SlidingWindow window(9);
const ChunkedAttention chunked(10);
const Sinks sinks;

}  // namespace

TEST_SUITE("core/memory/resumable") {
  TEST_CASE("the deepest position that the pool agrees to resume at") {
    const std::vector<std::vector<const MemoryKind*>> models = {
        {&full}, {&window}, {&chunked}, {&sinks}, {&full, &window}, {&sinks, &chunked}};
    for (const auto& kinds : models) {
      MemoryPool pool(toy_layout({.kinds = kinds, .recurrent = false}));
      for (const std::int32_t length : {1, 4, 9, 10, 23, 40, 41, 80}) {
        const Checkpoint checkpoint = checkpoint_at(pool, length);
        for (std::int32_t limit = 0; limit <= length + 2; ++limit) {
          std::int32_t expected = std::min(limit, length);
          while (expected > 0 && !pool.can_resume(checkpoint, expected)) --expected;
          CAPTURE(kinds.front()->name());
          CAPTURE(length);
          CAPTURE(limit);
          REQUIRE(resumable_length(pool.layout(), checkpoint, limit) == expected);
        }
      }
    }
  }

  TEST_CASE("recurrent layers resume at the checkpoint's own length and nowhere else") {
    MemoryPool pool(toy_layout({.kinds = {&full}}));
    const Checkpoint checkpoint = checkpoint_at(pool, 20);
    CHECK(resumable_length(pool.layout(), checkpoint, 20) == 20);
    CHECK(resumable_length(pool.layout(), checkpoint, 25) == 20);
    CHECK(resumable_length(pool.layout(), checkpoint, 19) == 0);
  }

  TEST_CASE("which kinds keep everything") {
    CHECK(keeps_everything(full));
    CHECK_FALSE(keeps_everything(window));
    CHECK_FALSE(keeps_everything(chunked));
    CHECK_FALSE(keeps_everything(sinks));
    CHECK(resumes_anywhere(toy_layout({.kinds = {&full}, .recurrent = false})));
    CHECK_FALSE(resumes_anywhere(toy_layout({.kinds = {&full, &window}, .recurrent = false})));
    CHECK_FALSE(resumes_anywhere(toy_layout({.kinds = {&full}})));
  }
}
