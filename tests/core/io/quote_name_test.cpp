#include "core/io/quote_name.h"

#include <doctest/doctest.h>

using namespace hyb;

TEST_SUITE("core/io/quote_name") {
  TEST_CASE("control characters are shown, not sent") {
    CHECK(quote_name("a.b") == "\"a.b\"");
    CHECK(quote_name("a\x1b[0m\n\x7f") == "\"a\\x1b[0m\\x0a\\x7f\"");
    CHECK(quote_name("\xc2\x9b") == "\"\\xc2\\x9b\"");
    CHECK(quote_name("\xc2\xa0\xc3\xa9") == "\"\xc2\xa0\xc3\xa9\"");
  }

  TEST_CASE("long names are cut between characters") {
    CHECK(quote_name(std::string(200, 'x')) == "\"" + std::string(200, 'x') + "\"");
    std::string name(199, 'x');
    name += "\xc3\xa9 and more";
    CHECK(quote_name(name) == "\"" + std::string(199, 'x') + "\"...");
  }
}
