#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/io/file.h"
#include "tests/models/loaded.h"

namespace hyb::models::testing {

/// A fixture's folder and what an independent implementation made of it.
struct Golden {
  explicit Golden(const std::string& name)
      : folder(golden_folder / name),
        json(parse_json(read_whole_file(folder / "golden.json", 1 << 24), name)),
        tensors(folder / "golden.safetensors") {
    tensors.map();
    for (const auto& prompt : json["prompts"]) prompts.push_back(ids(prompt));
  }

  static std::vector<TokenId> ids(const Json& list) {
    std::vector<TokenId> tokens;
    for (const auto& id : list) tokens.push_back(TokenId{id.get<std::int32_t>()});
    return tokens;
  }

  std::vector<float> values(const std::string& name) const {
    const TensorView view = tensors.view(name).value();
    std::vector<float> out(view.bytes.size() / sizeof(float));
    std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
    return out;
  }

  std::filesystem::path folder;
  Json json;
  SafetensorsFile tensors;
  std::vector<std::vector<TokenId>> prompts;
};

/// Of our logits from the expected ones, over rows of row_size logits.
struct Distance {
  std::size_t row_size;
  double max = 0.0, square_sum = 0.0, largest = 0.0;
  std::vector<double> rows = {};  ///< root-mean-square difference of each

  void add(std::span<const float> ours, std::span<const float> expected) {
    REQUIRE(ours.size() == expected.size());
    REQUIRE(ours.size() % row_size == 0);
    for (std::size_t start = 0; start < ours.size(); start += row_size) {
      double row = 0.0;
      for (std::size_t i = start; i < start + row_size; ++i) {
        const double difference = std::abs(double{ours[i]} - expected[i]);
        REQUIRE(std::isfinite(difference));
        max = std::max(max, difference);
        row += difference * difference;
        largest = std::max(largest, std::abs(double{expected[i]}));
      }
      square_sum += row;
      rows.push_back(std::sqrt(row / static_cast<double>(row_size)));
    }
  }

  double relative_max() const { return max / largest; }
  double relative_rms() const {
    return std::sqrt(square_sum / static_cast<double>(rows.size() * row_size)) / largest;
  }
  double middle_row() const {
    std::vector<double> sorted = rows;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t half = sorted.size() / 2;
    return (sorted[half] + sorted[(sorted.size() - 1) / 2]) / 2 / largest;
  }
};

inline Distance distance_of_all_prompts(Loaded& loaded, const Golden& golden) {
  Distance distance{static_cast<std::size_t>(loaded.model.plan.vocab)};
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    distance.add(loaded.run(golden.prompts[i], 0), golden.values("logits." + std::to_string(i)));
  }
  return distance;
}

inline TokenId likeliest(std::span<const float> row) {
  return TokenId{static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin())};
}

}  // namespace hyb::models::testing
