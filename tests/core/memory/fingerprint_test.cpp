#include "core/memory/fingerprint.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("core/memory/fingerprint") {
  TEST_CASE("the first difference is named, with both values") {
    const Fingerprint here = {{"a", "1"}, {"b", "2"}};
    CHECK(difference(here, here).empty());
    CHECK(difference(here, {{"a", "1"}, {"b", "3"}}) == "\"b\" is \"2\" here and \"3\" there");
    CHECK(difference(here, {{"a", "1"}}) == "\"b\" is \"2\" here and not given there");
    CHECK(difference({{"a", "1"}}, here) == "\"b\" is not given here and \"2\" there");
  }

  TEST_CASE("what comes from a file can't send escape sequences") {
    CHECK(difference({}, {{"\x1b[2J", "\x1b]0;x"}}).find('\x1b') == std::string::npos);
  }

  TEST_CASE("to JSON and back") {
    const Fingerprint fingerprint = {{"a", "1"}, {"\"", "ü\n"}};
    CHECK(fingerprint_from(parse_json(to_text(to_json(fingerprint)), "x"), "x") == fingerprint);
    CHECK(contains(model_error([] { fingerprint_from(Json::array(), "f"); }), "f: "));
    CHECK(contains(model_error([] { fingerprint_from(Json{{"k", 1}}, "f"); }), "\"k\""));
  }
}
