#include "core/io/checksum.h"

#include <doctest/doctest.h>

#include <string_view>

using namespace hyb;

TEST_SUITE("core/io/checksum") {
  TEST_CASE("the sum is XXH3 of 64 bits, as published") {
    // XXH3_64bits of no bytes and of "abc" with seed 0, from the specification's test values.
    CHECK(checksum({}) == 0x2D06800538D394C2U);
    CHECK(checksum(std::as_bytes(std::span(std::string_view("abc")))) == 0x78AF5F94892F3950U);
  }

  TEST_CASE("another seed, another sum") {
    const auto bytes = std::as_bytes(std::span(std::string_view("abc")));
    CHECK(checksum(bytes, 1) != checksum(bytes, 2));
  }
}
