#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/batch/line_template.h"
#include "tests/support/error_text.h"

namespace line_template_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

using Fields = std::vector<std::string>;

std::string refusal(const std::string& text) {
  return error_text([&] { LineTemplate{text}; });
}

}  // namespace

TEST_SUITE("app/batch/line_template") {
  TEST_CASE("places, braces, and what is no template") {
    CHECK(LineTemplate("Say {}, {}!").of_text("a") == "Say a, a!");
    CHECK(LineTemplate("{{{}}} {{x}}").of_text("{}") == "{{}} {x}");
    CHECK(contains(refusal("no place"), "{} is all of its text"));
    CHECK(contains(refusal("{{}}"), "no place"));
    for (const char* text : {"{", "}", "{a", "a}", "{a{b}", "{}}"}) {
      CAPTURE(text);
      CHECK(contains(refusal(text), "the brace at byte"));
    }
    CHECK(contains(refusal("{} {a}"), "has {} and names"));
    const std::string half(line_bytes_max / 2, 'a');
    CHECK(LineTemplate("{}{}").of_text(half).size() == line_bytes_max);
    CHECK(contains(error_text([&] { LineTemplate("{} {}").of_text(half); }), "16777217 bytes"));
  }

  TEST_CASE("columns are found by the header, and lines have all of them") {
    LineTemplate filling("{b c}: {a}");
    filling.set_header({"a", "", "b c", ""});
    CHECK(filling.of_fields({"1", "2", "3", "4"}) == "3: 1");
    CHECK(error_text([&] { filling.of_fields({"1", "2"}); }) == "has 2 fields, the header 4");
    CHECK(contains(error_text([&] {
                     filling.set_header({"a", "b"});
                   }),
                   "no column named b c; the columns are: a, b"));
    CHECK(contains(error_text([&] {
                     filling.set_header({"a", "b c", "a"});
                   }),
                   "several columns named a"));
  }

  TEST_CASE("members of objects: texts as they are, others as JSON, and null is none") {
    const LineTemplate filling("{t} {n} {l}");
    Json object = {{"id", "x"}, {"t", "a\"b"}, {"n", 3}, {"l", {1, 2}}, {"prompt", "old"}};
    CHECK(filling.missing_member(object).empty());
    filling.fill_object(object);
    CHECK(object == Json{{"id", "x"}, {"prompt", "a\"b 3 [1,2]"}});
    Json lacking = {{"t", 1}, {"n", 2}};
    CHECK(contains(filling.missing_member(lacking), "no member named l; it has: t, n"));
    lacking["l"] = nullptr;
    CHECK(contains(error_text([&] { filling.fill_object(lacking); }), "l is null"));
    Json request = {{"t", 1}, {"n", 2}, {"l", 3}, {"body", Json::object()}};
    CHECK(contains(error_text([&] { filling.fill_object(request); }), "has a body"));
  }

  TEST_CASE("fields of CSV may be quoted, those of TSV are as they are") {
    CHECK(fields_of("a,b,,", ',') == Fields{"a", "b", "", ""});
    CHECK(fields_of("", ',') == Fields{""});
    CHECK(fields_of(R"("a,""b""",cd,"")", ',') == Fields{"a,\"b\"", "cd", ""});
    CHECK(contains(error_text([] { fields_of("\"x\"y", ','); }), "after its closing quote"));
    CHECK(contains(error_text([] { fields_of("x,c\"d", ','); }), "does not begin with one"));
    CHECK(fields_of("\"a\tb,c", '\t') == Fields{"\"a", "b,c"});
    CHECK(contains(error_text([] { fields_of("x,\"a", ','); }), "a quote does not end"));
  }
}

}  // namespace line_template_test
