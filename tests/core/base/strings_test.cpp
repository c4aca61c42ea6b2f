#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/strings.h"

namespace strings_test {

using namespace hyb;

TEST_SUITE("core/base/strings") {
  TEST_CASE("the distance of two words counts letters to insert, delete or change") {
    CHECK(edit_distance("", "") == 0);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("run", "rune") == 1);
    CHECK(edit_distance("inspect", "insepct") == 1);
    CHECK(edit_distance("abcd", "badc") == 2);
    CHECK(edit_distance("kitten", "sitting") == 3);
  }

  TEST_CASE("the nearest name is near, or there is none") {
    const std::vector<std::string> known = {"run", "bench", "inspect"};
    CHECK(nearest_name("insepct", known) == "inspect");
    CHECK(nearest_name("bnch", known) == "bench");
    CHECK(nearest_name("ran", known) == "run");
    CHECK(nearest_name("rnu", known) == "run");
    CHECK(nearest_name("serve", known) == "");
    CHECK(nearest_name("", known) == "");
    CHECK(nearest_name(std::string(1 << 20, 'x'), known) == "");
    CHECK(nearest_name("run", {}) == "");
  }

  TEST_CASE("small letters, and names in the order of their sizes") {
    CHECK(in_small_letters("Qwen3-\xc3\x84") == "qwen3-\xc3\x84");
    CHECK(names_by_size({}).empty());
    CHECK(names_by_size({{"F32", 1}, {"Q4_K", 9}, {"Q6_K", 3}}) == "Q4_K, Q6_K, F32");
  }

  TEST_CASE("counts have the noun's number") {
    CHECK(counted(0, "line") == "0 lines");
    CHECK(counted(1, "line") == "1 line");
    CHECK(counted(2, "line") == "2 lines");
  }
}

}  // namespace strings_test
