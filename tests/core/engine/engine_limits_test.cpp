#include "core/engine/engine_limits.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

using namespace hyb;

namespace {

MemoryLayout layout_of(std::int32_t pages) {
  return flat_layout({.pages = pages, .slots = 2, .page_tokens = 4});
}

}  // namespace

TEST_SUITE("core/engine/engine_limits") {
  TEST_CASE("what is asked for, or what the pool can ever hold") {
    for (const std::int32_t pages : {1, 2, 7, 100}) {
      const MemoryPool pool(layout_of(pages));
      const std::int32_t limit = length_limit(pool, 1000);
      CHECK(limit == 4 * pages);
      CHECK(pool.can_ever_hold(limit, 1));
      CHECK_FALSE(pool.can_ever_hold(limit + 1, 1));
      CHECK(length_limit(pool, limit - 1) == limit - 1);
    }
  }

  TEST_CASE("a prompt that memory is too small for is refused with the figures") {
    const MemoryPool pool(layout_of(7));
    CHECK_NOTHROW(check_fits(pool, 27, 28, 1000));
    CHECK_NOTHROW(check_fits(pool, 1000, 28, 1000));  // over what was asked for: another rule's
    const std::string text = testing::error_text([&] { check_fits(pool, 28, 28, 1000); });
    CHECK(testing::contains(text, "the prompt has 28 tokens"));
    CHECK(testing::contains(text, "enough for a prompt of 27 tokens"));
  }
}
