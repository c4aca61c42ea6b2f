#include <doctest/doctest.h>

#include "tests/models/reuse_world.h"
#include "tests/support/level.h"

namespace cuda_reuse_test {

using namespace hyb;
using namespace hyb::models::testing;

namespace {

/// Each with what another one has not.
std::vector<Setting> settings() {
  std::vector<Setting> chosen = {
      {.memory = "flip", .remembers = true, .sequences = 8, .chunk = 16},
      {.memory = "tiny", .remembers = true, .sequences = 8, .chunk = 5},
  };
  if (hyb::testing::is_full_level()) {
    for (const char* const memory : {"flat", "remap", "small"}) {
      for (const std::int32_t chunk : {64, 16, 5}) {
        chosen.push_back({.memory = memory, .sequences = 8, .chunk = chunk});
        chosen.push_back({.memory = memory, .remembers = true, .sequences = 1, .chunk = chunk});
      }
    }
  }
  return chosen;
}

void check_settings(ReuseFolder& folder, const std::vector<Setting>& chosen) {
  const std::vector<Request> requests = folder.requests();
  const auto plain = folder.live({});
  const std::vector<Answer> expected = answers_of(*plain, requests, 1);
  for (const Setting& setting : chosen) {
    CAPTURE(setting.memory);
    CAPTURE(setting.chunk);
    const auto life = folder.live(setting);
    CHECK(answers_of(*life, requests, setting.sequences) == expected);
    CHECK(life->witness.differences == 0);
  }
}

}  // namespace

TEST_SUITE("cuda/reuse") {
  TEST_CASE("batch-invariant: neither reuse, company, chunks nor memory changes a bit") {
    std::vector<std::string> names = {"granite-dense-rope", "qwen3_5-dense"};
    if (hyb::testing::is_full_level()) names = reuse_folders;
    for (const std::string& name : names) {
      CAPTURE(name);
      ReuseFolder folder(name, kernels::Device::cuda);
      check_settings(folder, settings());
    }
  }

  TEST_CASE("batch-invariant: the same over pages of F8_E4M3") {
    ReuseFolder folder("qwen3_5-dense", kernels::Device::cuda, fp8_pages);
    check_settings(folder, {settings().front()});
  }
}

}  // namespace cuda_reuse_test
