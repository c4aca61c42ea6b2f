#include "core/text/json_fields.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/error_text.h"

using namespace hyb;
using testing::contains;
using testing::model_error;

TEST_SUITE("core/text/json_fields") {
  TEST_CASE("fields of the right type are read, null is missing") {
    const Json json = parse_json(R"({"s":"x","t":true,"i":-7,"l":[1],"n":null})", "f");
    const JsonFields fields(json, "f: here");
    CHECK(fields.text("s") == "x");
    CHECK(fields.text_or("n", "y") == "y");
    CHECK(fields.flag_or("t", false));
    CHECK(fields.flag_or("none", true));
    CHECK(fields.integer("i") == -7);
    CHECK(fields.array("l").size() == 1);
    CHECK(fields.at("none").is_null());
  }

  TEST_CASE("others are errors that name the place and the key") {
    const Json json = parse_json(R"({"s":1,"i":1.5,"u":18446744073709551615})", "f");
    const JsonFields fields(json, "f: here");
    CHECK(model_error([&] { fields.text("s"); }) == "f: here: \"s\" has to be a string");
    CHECK(contains(model_error([&] { fields.text_or("s", ""); }), "\"s\""));
    CHECK(contains(model_error([&] { fields.flag_or("s", true); }), "true or false"));
    CHECK(contains(model_error([&] { fields.integer("i"); }), "integer"));
    CHECK(contains(model_error([&] { fields.integer("u"); }), "integer"));
    CHECK(contains(model_error([&] { fields.array("s"); }), "list"));
    CHECK(contains(model_error([&] { JsonFields(json["s"], "f: s"); }), "f: s: an object"));
  }
}
