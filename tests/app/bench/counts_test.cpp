#include "app/bench/counts.h"

#include <doctest/doctest.h>

#include <array>

#include "core/base/error.h"

using namespace hyb;
using namespace hyb::app;

namespace {

std::vector<std::int32_t> counts(const std::string& text) {
  return parse_counts(std::array{text}, "-p");
}

std::string refusal(const std::string& text) {
  try {
    counts(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

using Counts = std::vector<std::int32_t>;

}  // namespace

TEST_SUITE("app/bench/counts") {
  TEST_CASE("lists and ranges") {
    CHECK(counts("512") == Counts{512});
    CHECK(counts("0") == Counts{0});
    CHECK(counts("128,512,1") == Counts{128, 512, 1});
    CHECK(counts("3-6") == Counts{3, 4, 5, 6});
    CHECK(counts("256-1024+256") == Counts{256, 512, 768, 1024});
    CHECK(counts("256-1023+256") == Counts{256, 512, 768});
    CHECK(counts("64-1024*4") == Counts{64, 256, 1024});
    CHECK(counts("7,1-4*2,9") == Counts{7, 1, 2, 4, 9});
    CHECK(counts("5-5") == Counts{5});
    CHECK(parse_counts(std::array<std::string, 2>{"1,2", "3"}, "-p") == Counts{1, 2, 3});
  }

  TEST_CASE("everything else is refused with the option and the text") {
    for (const char* text :
         {"", ",", "5,", "a", "-5", "1 ", "1.5", "4-2", "1-4+0", "1-4*1", "0-4*2", "1-4+", "1-4x2",
          "1--4", "1-4+1+1", "16777217", "99999999999999999999", "1-2000"}) {
      CAPTURE(text);
      CHECK(refusal(text).starts_with("-p: "));
    }
    CHECK(refusal("1,zz,3").find("'zz'") != std::string::npos);
  }

  TEST_CASE("pairs") {
    CHECK(parse_pair("512,128", "-pg").first == 512);
    CHECK(parse_pair("512,128", "-pg").second == 128);
    for (const char* text : {"", "512", "512,", ",1", "0,1", "1,0", "1,2,3", "a,b", "1;2"}) {
      CAPTURE(text);
      CHECK_THROWS_AS(parse_pair(text, "-pg"), Error);
    }
  }
}
