#include "app/inspect/tensor_check.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "models/weight_index.h"
#include "tests/support/plans.h"
#include "tests/support/temporary_folder.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

const std::filesystem::path golden =
    std::filesystem::path(HYB_TESTS_DIR) / "golden/granite-dense-nope";

ModelOutline outline() { return outline_of(ModelSource::find(golden, {}), {}); }

/// The fixture's weights with one name in the header changed to another of the same length.
TensorCheck check_renamed(const std::string& from, const std::string& to) {
  std::string bytes = read_whole_file(golden / "model.safetensors", 64U << 20);
  const std::size_t at = bytes.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(from.size() == to.size());
  bytes.replace(at, from.size(), to);
  const TemporaryFolder folder;
  folder.write("model.safetensors", bytes);
  return check_tensors(outline(), TensorFiles(folder.path()));
}

const TensorRow* find(const TensorCheck& check, const std::string& name) {
  const auto found = std::find_if(check.rows.begin(), check.rows.end(),
                                  [&](const TensorRow& row) { return row.name == name; });
  return found == check.rows.end() ? nullptr : &*found;
}

}  // namespace

TEST_SUITE("app/inspect/tensor_check") {
  TEST_CASE("a good folder is complete") {
    const TensorCheck check = check_tensors(outline(), TensorFiles(golden));
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
    const TensorCheck check = check_tensors(other, TensorFiles(golden));
    CHECK(!check.is_complete());
    CHECK(check.count(TensorVerdict::extra) == 0);
    CHECK(check.count(TensorVerdict::wrong) > 5);
    const TensorRow* const norm = find(check, "model.layers.3.input_layernorm.weight");
    REQUIRE(norm != nullptr);
    CHECK(norm->verdict == TensorVerdict::wrong);
    CHECK(norm->note.starts_with("a block0.norm for which config.json has no place"));
    CHECK_THROWS_AS(models::WeightIndex(other.plan, *other.family, TensorFiles(golden)), Error);
  }

  TEST_CASE("another shape or type is wrong and says what is asked for") {
    ModelOutline other = outline();
    other.plan.vocab += 1;
    const TensorCheck shapes = check_tensors(other, TensorFiles(golden));
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
