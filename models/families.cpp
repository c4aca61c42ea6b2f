#include "models/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "core/io/file.h"

namespace hyb::models {
namespace {

/// Number of letters to insert, delete or change to turn one name into the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

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
        return distance(wanted, a) < distance(wanted, b);
      });
  config.fail("model_type", fmt::format("{} is not known; the nearest is {}; known are {}",
                                        quote_name(wanted), nearest, fmt::join(known, ", ")));
}

}  // namespace hyb::models
