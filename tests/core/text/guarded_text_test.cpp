#include "core/text/guarded_text.h"

#include <doctest/doctest.h>

namespace guarded_text_test {

using namespace hyb;

TEST_SUITE("core/text/guarded_text") {
  TEST_CASE("guards are kept per byte only where they differ") {
    GuardedText text;
    text.append("", Guard::closed);
    text.append("ab", Guard::thinking);
    text.append("c", Guard::thinking);
    CHECK(text.guards.empty());
    CHECK(text.guard(2) == Guard::thinking);
    text.append("d", Guard::closed);
    CHECK(text.guards.size() == 4);
    CHECK(text.guard(0) == Guard::thinking);
    CHECK(text.guard(3) == Guard::closed);
    const GuardedText part = text.slice(0, 3);
    CHECK(part.text == "abc");
    CHECK(part.guards.empty());
    CHECK(part.guard(1) == Guard::thinking);
    CHECK(text.slice(2, 4).guard(1) == Guard::closed);
  }

  TEST_CASE("a replacement takes the strictest guard of the replaced bytes") {
    GuardedText text;
    text.append("ab", Guard::open);
    text.append("cd", Guard::closed);
    GuardedRewrite rewrite(text);
    rewrite.keep(0, 1);
    rewrite.put("XYZ", 1, 3);
    rewrite.put("+", 3, 3);
    rewrite.keep(3, 4);
    const GuardedText out = rewrite.take();
    CHECK(out.text == "aXYZ+d");
    CHECK(out.guard(0) == Guard::open);
    for (std::size_t at : {1, 2, 3, 5}) CHECK(out.guard(at) == Guard::closed);
    CHECK(out.guard(4) == Guard::open);
  }

  TEST_CASE("ill-formed bytes become U+FFFD, one per maximal subpart") {
    GuardedText text;
    text.append("a\xE2\x82", Guard::open);
    text.append("b\xFF", Guard::closed);
    const GuardedText out = well_formed(text);
    CHECK(out.text == "a\uFFFDb\uFFFD");
    CHECK(out.guards.size() == out.text.size());
    CHECK(out.guard(1) == Guard::open);
    CHECK(out.guard(5) == Guard::closed);
  }
}

}  // namespace guarded_text_test
