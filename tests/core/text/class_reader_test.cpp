#include "core/text/class_reader.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

using namespace hyb;
using testing::contains;
using testing::model_error;

namespace {

std::string written(const std::string& text) {
  PatternReader reader(text, "f");
  const ClassText read = read_class(reader);
  CHECK(reader.done());
  return write_char_set(read.set);
}

std::string error_of(const std::string& text) {
  return model_error([&] {
    PatternReader reader(text, "f");
    read_class(reader);
  });
}

}  // namespace

TEST_SUITE("core/text/class_reader") {
  TEST_CASE("members of a class") {
    CHECK(written("[a-z_]") == "[a-z\\x5f]");
    CHECK(written("[^é\\]]") == "[^é\\]]");
    CHECK(written("[a-]") == "[a\\x2d]");
    CHECK(written("[\\-x]") == "[\\-x]");
    CHECK(written("[\\n\\x41\\u00e9\\x{1F600}]") == "[\\n\\x{41}\\x{e9}\\x{1f600}]");
    CHECK(written("[\\p{L}\\P{Nd}]") == "[\\p{L}\\P{Nd}]");
    CHECK(written("[[:digit:][:^alpha:]]") == "[\\p{Nd}\\P{Alphabetic}]");
    CHECK(written("[a[bc][^d]]") == "(?:[abc]|[^d])");
    CHECK(written("[\\p{L}&&[^\\p{Han}]]") == "(?:(?=[\\p{L}])(?:[^\\p{sc:han}]))");
    CHECK(written("[\\b]") == "[\\x08]");
  }

  TEST_CASE("what is damaged or unknown is an error that says where") {
    CHECK(contains(error_of("[a"), "a class is not closed (at byte 2 of \"[a\")"));
    CHECK(contains(error_of("[]a]"), "begins with ]"));
    CHECK(contains(error_of("[a&&]"), "empty part"));
    CHECK(contains(error_of("[&&a]"), "nothing before &&"));
    CHECK(contains(error_of("[\\p{Klingon}]"), "Klingon"));
    CHECK(contains(error_of("[[:klingon:]]"), "klingon"));
    CHECK(contains(error_of("[\\pL]"), "{name}"));
    CHECK(contains(error_of("[\\xFF]"), "write \\x{80}"));
    CHECK(contains(error_of("[\\x{110000}]"), "bad code point"));
    CHECK(contains(error_of("[\\uD800]"), "bad code point"));
    CHECK(contains(error_of("[\\u12"), "bad code point") + contains(error_of("[\\u12"), "four") ==
          1);
    CHECK(contains(error_of("[\\q]"), "\\q is not supported"));
    CHECK(contains(error_of("[a-[b]]"), "range"));
    CHECK(contains(error_of(std::string(40, '[')), "too deep"));
  }
}
