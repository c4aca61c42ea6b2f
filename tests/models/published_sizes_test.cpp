#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/base/json.h"
#include "core/io/file.h"
#include "models/families.h"
#include "models/geometry.h"
#include "models/weight_list.h"

using namespace hyb;
using namespace hyb::models;

namespace {

/// What scripts/make_published_sizes.py counted, for published checkpoints of all families.
Json published_sizes() {
  const std::string path = HYB_TESTS_DIR "/models/published_sizes.json";
  return parse_json(read_whole_file(path, 1U << 20), path, {.python_numbers = true});
}

void check_sizes(const Json& row) {
  CAPTURE(row["name"].get<std::string>());
  const Config config = Config::from_text(to_text(row["config"]), row["name"].get<std::string>());
  const Family& family = family_of(config);
  Plan plan = family.plan(config);
  CHECK(plan.layers.size() == row["layers"].get<std::size_t>());

  const auto weights = required_weights(plan, family);
  CHECK(parameters(weights) == row["parameters"].get<std::int64_t>());
  CHECK(weights.size() == row["tensors"].get<std::size_t>());

  const DType states[] = {DType::f32, DType::bf16};
  for (const DType state : states) {
    plan.state_dtype = state;
    const Geometry geometry = geometry_of(plan);
    const char* key = state == DType::f32 ? "state_bytes_f32" : "state_bytes_bf16";
    CHECK(geometry.state_bytes_per_sequence == row[key].get<std::size_t>());
    CHECK(geometry.kv_bytes_per_token == row["kv_bytes_per_token"].get<std::size_t>());
    CHECK(geometry.pages.size() == row["attention_layers"].get<std::size_t>());
    CHECK(geometry.pieces.size() == row["recurrent_layers"].get<std::size_t>());
  }
}

}  // namespace

TEST_SUITE("models/published_sizes") {
  TEST_CASE("layers, parameters, tensors, KV and state of published checkpoints") {
    const Json rows = published_sizes();
    CHECK(rows.size() == 19);
    for (const Json& row : rows) check_sizes(row);
  }
}
