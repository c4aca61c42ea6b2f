#include "core/memory/layout.h"

#include <doctest/doctest.h>

#include <random>

#include "core/base/error.h"

using namespace hyb;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

void check(const SuperblockPlan& plan, std::span<const ViewRequest> views) {
  REQUIRE(plan.views.size() == views.size());
  for (std::size_t v = 0; v < views.size(); ++v) {
    const ViewPlan& view = plan.views[v];
    std::size_t used = 0, mapped = 0;
    for (std::size_t i = 0; i < views[v].plane_unit_bytes.size(); ++i) {
      const auto units = static_cast<std::size_t>(view.units_per_superblock);
      used += units * views[v].plane_unit_bytes[i];
      mapped += view.plane_bytes[i];
      CHECK(view.plane_bytes[i] % plan.handle_bytes == 0);
      const std::size_t stride =
          view.unit_stride != 0 ? view.unit_stride : views[v].plane_unit_bytes[i];
      CHECK(stride >= views[v].plane_unit_bytes[i]);
      CHECK(units * stride == view.plane_bytes[i]);
    }
    CHECK(mapped <= plan.superblock_bytes());
    if (!views[v].plane_unit_bytes.empty()) {
      CHECK(static_cast<double>(used) >= 0.97 * static_cast<double>(plan.superblock_bytes()));
    }
  }
}

}  // namespace

TEST_SUITE("core/memory/layout") {
  TEST_CASE("superblocks of published models are those of the arithmetic by hand") {
    // Layers x bytes of a page of 16 tokens, and bytes of an f32 slot (models.md section 6).
    const auto plan = [](std::size_t layers, std::size_t page, double slot_mib) {
      const std::vector<ViewRequest> views{
          {.plane_unit_bytes = std::vector<std::size_t>(layers, page)},
          {.plane_unit_bytes = {static_cast<std::size_t>(slot_mib * static_cast<double>(mib))},
           .may_stretch = true}};
      const SuperblockPlan found = plan_superblocks(views, 2 * mib, 1024 * mib);
      check(found, views);
      return found;
    };
    const SuperblockPlan granite_tiny = plan(4, 32768, 54.69);
    CHECK(granite_tiny.handles == 28);
    CHECK(granite_tiny.views[1].units_per_superblock == 1);
    CHECK(granite_tiny.views[0].units_per_superblock == 7 * 64);
    const SuperblockPlan nemotron_3_nano = plan(6, 16384, 46.81);
    CHECK(nemotron_3_nano.handles == 24);
    CHECK(nemotron_3_nano.views[0].units_per_superblock == 8192 / 16);
    plan(6, 65536, 141.97);
    plan(12, 32768, 73.69);
  }

  TEST_CASE("any sizes: linear addresses, whole handles, at most 3 percent wasted") {
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
      std::vector<ViewRequest> views(2 + random() % 3);
      for (ViewRequest& view : views) {
        view.may_stretch = random() % 2 == 0;
        const std::size_t planes = view.may_stretch ? 1 : random() % 5;
        for (std::size_t i = 0; i < planes; ++i) {
          const std::size_t bytes =
              view.may_stretch ? 64 * (1 + random() % 5000)
                               : (std::size_t{1} << (6 + random() % 5)) * (1 + random() % 3);
          view.plane_unit_bytes.push_back(bytes);
        }
      }
      check(plan_superblocks(views, 4096, 256 * mib), views);
    }
  }

  TEST_CASE("what does not fit is an error, not a wasteful superblock") {
    const std::vector<ViewRequest> views{{.plane_unit_bytes = {3 * mib}, .may_stretch = true}};
    CHECK_THROWS_AS(plan_superblocks(views, 2 * mib, 2 * mib), Error);
  }
}
