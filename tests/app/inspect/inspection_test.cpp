#include <algorithm>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/inspect/inspection.h"
#include "models/weight_index.h"
#include "tests/support/files.h"
#include "tests/support/plans.h"

namespace inspection_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/inspect/plan_text") {
  TEST_CASE("runs of numbers") {
    CHECK(runs_text({}) == "");
    CHECK(runs_text({7}) == "7");
    CHECK(runs_text({0, 1, 2, 5, 7, 8}) == "0-2, 5, 7-8");
  }

  TEST_CASE("layers of a kind and size are one group") {
    const auto groups = part_groups(plan_of("granite-4.0-h-tiny"));
    REQUIRE(groups.size() == 3);
    CHECK(groups[0].kind == "ssd");
    CHECK(groups[0].layers.size() == 36);
    CHECK(groups[1].kind == "moe");
    CHECK(groups[1].layers.size() == 40);
    CHECK(groups[1].text == "64 experts, 6 active, 512 wide, gated silu, shared expert 1024 wide");
    CHECK(groups[2].kind == "attention");
    CHECK(runs_text(groups[2].layers) == "5, 15, 25, 35");
  }

  TEST_CASE("every family's parts have words") {
    for (const char* name :
         {"nemotron-3-nano-30b-a3b", "nemotron-nano-12b-v2", "qwen3-next-80b-a3b"}) {
      for (const PartGroup& group : part_groups(plan_of(name))) CHECK(!group.text.empty());
    }
  }

  TEST_CASE("layers are counted by kind") {
    CHECK(layer_counts(plan_of("qwen3-next-80b-a3b")) ==
          Json({{"total", 48}, {"delta", 36}, {"moe", 48}, {"attention", 12}}));
  }
}

namespace {

const std::filesystem::path golden =
    std::filesystem::path(HYB_TESTS_DIR) / "golden/granite-dense-nope";

ModelOutline outline() {
  ModelOptions options;
  options.model = golden.string();
  return outline_of(resolve(options, {}));
}

/// The fixture's weights with one name in the header changed to another of the same length.
TensorCheck check_renamed(const std::string& from, const std::string& to) {
  std::string bytes = read_whole_file(golden / "model.safetensors", 64U << 20);
  const std::size_t at = bytes.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(from.size() == to.size());
  bytes.replace(at, from.size(), to);
  const TemporaryFolder folder;
  folder.write("model.safetensors", bytes);
  return check_tensors(outline().plan, *outline().family, TensorFiles(folder.path()));
}

const TensorRow* find(const TensorCheck& check, const std::string& name) {
  const auto found = std::find_if(check.rows.begin(), check.rows.end(),
                                  [&](const TensorRow& row) { return row.name == name; });
  return found == check.rows.end() ? nullptr : &*found;
}

}  // namespace

TEST_SUITE("app/inspect/tensor_check") {
  TEST_CASE("a good folder is complete") {
    const TensorCheck check = check_tensors(outline().plan, *outline().family, TensorFiles(golden));
    CHECK(check.is_complete());
    CHECK(check.count(TensorVerdict::right) == static_cast<std::int64_t>(check.rows.size()));
    CHECK(check.files == 1);
  }

  TEST_CASE("a tensor under another name is missing, and extra") {
    const TensorCheck check = check_renamed("\"model.norm.weight\"", "\"model.worm.weight\"");
    CHECK(!check.is_complete());
    CHECK(check.count(TensorVerdict::missing) == 1);
    CHECK(check.count(TensorVerdict::extra) == 1);
    REQUIRE(find(check, "model.norm.weight") != nullptr);
    CHECK(find(check, "model.norm.weight")->verdict == TensorVerdict::missing);
    CHECK(find(check, "model.worm.weight")->verdict == TensorVerdict::extra);
  }

  TEST_CASE(
      "a tensor of the family for which config.json has no place is wrong, as for the loader") {
    ModelOutline other = outline();
    other.plan.layers.pop_back();
    const TensorCheck check = check_tensors(other.plan, *other.family, TensorFiles(golden));
    CHECK(!check.is_complete());
    CHECK(check.count(TensorVerdict::extra) == 0);
    CHECK(check.count(TensorVerdict::wrong) > 5);
    const TensorRow* const norm = find(check, "model.layers.3.input_layernorm.weight");
    REQUIRE(norm != nullptr);
    CHECK(norm->verdict == TensorVerdict::wrong);
    CHECK(norm->note.starts_with("a block0.norm for which config.json has no place"));
    CHECK_THROWS_AS(models::WeightIndex(other.plan, *other.family, TensorFiles(golden)), Error);
  }

  TEST_CASE("another shape or type is wrong and says what is needed") {
    ModelOutline other = outline();
    other.plan.vocab += 1;
    const TensorCheck shapes = check_tensors(other.plan, *other.family, TensorFiles(golden));
    CHECK(shapes.count(TensorVerdict::wrong) >= 1);
    CHECK(!shapes.is_complete());
    CHECK(shapes.rows.front().note.starts_with("config.json asks for ["));

    const TensorCheck types = check_renamed("\"dtype\":\"BF16\"", "\"dtype\":\"U16\" ");
    CHECK(types.count(TensorVerdict::wrong) == 1);
    CHECK(types.count(TensorVerdict::missing) == 0);
  }

  TEST_CASE("a folder without weights lacks all of them") {
    const TensorCheck check = required_tensors(outline());
    CHECK(check.count(TensorVerdict::missing) == static_cast<std::int64_t>(check.rows.size()));
    CHECK(check.rows.size() > 10);
  }
}

}  // namespace inspection_test
