#include "core/base/json.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace json_test {

using namespace hyb;

namespace {

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, "file", limits);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::model);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("core/base/json") {
  TEST_CASE("objects keep the order of the file") {
    const Json json = parse_json(R"({"b": 1, "a": [true, null, "x"]})", "file");
    CHECK(to_text(json) == R"({"b":1,"a":[true,null,"x"]})");
    CHECK(json["a"][2] == "x");
  }

  TEST_CASE("what a hostile file may contain is an error that names the file") {
    CHECK(error_of(R"({"a":1,"a":2})") == "file: duplicate key \"a\"");
    CHECK(error_of("[[[]]]", {.depth_max = 2}).find("deeper than 2") != std::string::npos);
    CHECK(error_of("[1,2]", {.bytes_max = 3}).find("at most 3") != std::string::npos);
    CHECK(error_of("{").find("byte") != std::string::npos);
    CHECK(error_of("\"\xff\"").find("not valid JSON") != std::string::npos);
    CHECK(error_of("{} x").find("not valid JSON") != std::string::npos);
    CHECK(error_of(std::string_view("{}\0x", 4)).find("NUL") != std::string::npos);
    CHECK(error_of("[1e999]").find("not valid JSON") != std::string::npos);
    CHECK(error_of(std::string(100000, '[')).find("deeper") != std::string::npos);
  }

  TEST_CASE("a message gives the place and the reason, without the library's names, and is short") {
    CHECK(error_of("{\"a\":1") ==
          "file: not valid JSON at byte 7 (syntax error while parsing object - "
          "unexpected end of input; expected '}')");
    CHECK(error_of("[1e999]") ==
          "file: not valid JSON at byte 6 (number overflow parsing '1e999')");
    CHECK(error_of('"' + std::string(100000, 'a')).size() < 300);
  }

  TEST_CASE("Python's bare numbers are read on request, and only outside strings") {
    const JsonLimits python = {.python_numbers = true};
    CHECK(to_text(parse_json(R"([0.0, Infinity, -Infinity, NaN, "NaN\" Infinity"])", "f",
                             python)) == R"([0.0,"Infinity","-Infinity","NaN","NaN\" Infinity"])");
    CHECK(error_of("[NaN]") != "");
  }
}

}  // namespace json_test
