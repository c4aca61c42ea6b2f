#include "app/tiers.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/tiers") {
  TEST_CASE("sizes and folders that make no sense are refused with what to do") {
    check_tiers({});
    check_tiers({.disk_tier = "20GB", .disk_tier_folder = "/tmp", .host_tier = ""});
    const auto refused = [](const TierFlags& flags) {
      return error_text([&] { check_tiers(flags); });
    };
    for (const char* size : {"auto", "80%", "many", "-1GB"}) {
      CHECK(contains(refused({.disk_tier = size, .disk_tier_folder = "", .host_tier = ""}),
                     "--disk-tier: '"));
    }
    CHECK(contains(refused({.disk_tier = "", .disk_tier_folder = "", .host_tier = "8GiB"}),
                   "the pools are in the host's memory already"));
    CHECK(contains(refused({.disk_tier = "", .disk_tier_folder = "/tmp", .host_tier = ""}),
                   "there is no --disk-tier"));
  }
}
