#include <vector>

#include <doctest/doctest.h>

#include "core/base/ids.h"

namespace ids_test {

using namespace hyb;

TEST_SUITE("core/base/common_prefix") {
  TEST_CASE("the common prefix ends at the first difference or with the shorter one") {
    const std::vector<TokenId> one = {TokenId{1}, TokenId{2}, TokenId{3}};
    const std::vector<TokenId> longer = {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4}};
    const std::vector<TokenId> other = {TokenId{1}, TokenId{5}, TokenId{3}, TokenId{4}};
    CHECK(common_prefix(one, one) == 3);
    CHECK(common_prefix(one, longer) == 3);
    CHECK(common_prefix(longer, one) == 3);
    CHECK(common_prefix(one, other) == 1);
    CHECK(common_prefix(std::vector<TokenId>{}, one) == 0);
  }
}

}  // namespace ids_test
