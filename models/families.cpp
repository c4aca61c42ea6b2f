#include "models/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb::models {

std::span<const Family* const> families() {
  static constexpr std::array table = {&bamba,      &falcon_h1, &granite_hybrid, &lfm2,
                                       &nemotron_h, &qwen3_5,   &qwen3_next};
  return table;
}

const Family& family_of(const Config& config) {
  // A name of a megabyte would take long to compare.
  const std::string wanted = config.model_type().substr(0, 64);
  std::vector<std::string_view> known;
  for (const Family* family : families()) {
    for (const std::string_view model_type : family->model_types) {
      if (model_type == wanted) return *family;
      known.push_back(model_type);
    }
  }
  const std::string_view nearest =
      *std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
        return edit_distance(wanted, a) < edit_distance(wanted, b);
      });
  config.fail("model_type", fmt::format("{} is not known; the nearest is {}; known are {}",
                                        quote_name(wanted), nearest, fmt::join(known, ", ")));
}

}  // namespace hyb::models
