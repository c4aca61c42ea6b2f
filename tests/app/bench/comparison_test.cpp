#include "app/bench/comparison.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace comparison_test {

using namespace hyb;
using namespace hyb::app;

namespace {

Json kernel_row(std::int32_t prompt, std::vector<double> samples) {
  return {{"model_filename", "demo"},
          {"n_prompt", prompt},
          {"n_gen", 0},
          {"n_depth", 0},
          {"batch", 1},
          {"samples_ts", std::move(samples)}};
}

Json workload_row(const std::vector<double>& rates, double ttft, double tpot) {
  return {{"workload", "random 64+16"},
          {"experiment", "closed loop, 1 at once"},
          {"condition", "cold"},
          {"policy", ""},
          {"output_throughputs", rates},
          {"ttft_means_ms", {ttft, ttft * 1.01, ttft * 0.99}},
          {"tpot_means_ms", {tpot, tpot * 1.01, tpot * 0.99}}};
}

Difference verdict_of(const std::vector<Change>& changes, const std::string& figure) {
  for (const Change& change : changes) {
    if (change.figure == figure) return change.verdict;
  }
  FAIL("no such figure");
  return Difference::same;
}

}  // namespace

TEST_SUITE("app/bench/comparison") {
  TEST_CASE("a mode of graphs that is one throughout a file is a setting, and no part of names") {
    const auto with = [](Json row, const char* mode) {
      row["graphs"] = mode;
      return row;
    };
    const Json old = Json::array({kernel_row(512, {100, 101})});  // of a build without the key
    const Json cpu = Json::array({with(old[0], "")}), eager = Json::array({with(old[0], "eager")});
    const Json both = Json::array({with(old[0], "eager"), with(old[0], "full")});
    for (const Json& one : {old, cpu, eager}) {
      for (const Json& other : {old, cpu, eager}) {
        REQUIRE(compare(one, other, {}).size() == 1);
        CHECK(compare(one, other, {})[0].row == "pp512");
      }
    }
    CHECK(setting_difference(cpu, eager) == "graphs: none and eager");
    CHECK(setting_difference(old, cpu).empty());
    const auto changes = compare(eager, both, {});
    REQUIRE(changes.size() == 1);
    CHECK(changes[0].row == "pp512, eager");
    CHECK(setting_difference(eager, both).empty());
    CHECK(has_regression(compare(both, eager, {})));  // "pp512, full" is missing
  }

  TEST_CASE("rows that differ in the number of prompts alone are all compared") {
    const auto with = [](int prompts, double ttft) {
      Json row = workload_row({10, 10.1, 9.9}, ttft, 5);
      row["num_prompts"] = prompts;
      return row;
    };
    const Json before = Json::array({with(2, 100), with(4, 100)});
    const Json after = Json::array({with(2, 100), with(4, 200)});
    const auto changes = compare(before, after, {});
    REQUIRE(changes.size() == 6);
    CHECK(changes[0].row == "random 64+16, closed loop, 1 at once, cold, 2 prompts");
    CHECK(has_regression(changes));
    const Json four = Json::array({with(4, 100)}), eight = Json::array({with(8, 100)});
    CHECK(compare(four, eight, {}).size() == 3);
    CHECK(setting_difference(four, eight) == "num_prompts: 4 and 8");
  }

  TEST_CASE("two rows of one name are an error; with no row in common one of each is named") {
    const auto error_of = [](const Json& before, const Json& after) {
      try {
        static_cast<void>(compare(before, after, {}));
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    const Json once = Json::array({kernel_row(512, {100, 101})});
    const Json twice = Json::array({kernel_row(512, {100, 101}), kernel_row(512, {90, 91})});
    CHECK(error_of(once, twice).starts_with("the second file: has two rows \"pp512\""));
    CHECK(error_of(twice, once).starts_with("the first file: has two rows"));
    CHECK(error_of(once, Json::array({kernel_row(64, {1, 2})})) ==
          "compare: the two files have no row in common; the first has \"pp512\", the second "
          "\"pp64\"");
  }

  TEST_CASE("slower beyond threshold and chance is worse, faster is better") {
    const Json before = Json::array({kernel_row(512, {100, 101, 99})});
    const auto after = [&](std::vector<double> samples) {
      return compare(before, Json::array({kernel_row(512, std::move(samples))}), {});
    };
    CHECK(after({90, 91, 89})[0].verdict == Difference::worse);
    CHECK(has_regression(after({90, 91, 89})));
    CHECK(after({110, 111, 109})[0].verdict == Difference::better);
    CHECK_FALSE(has_regression(after({110, 111, 109})));
    CHECK(after({97, 98, 96})[0].verdict == Difference::same);   // within 5 %
    CHECK(after({60, 130, 80})[0].verdict == Difference::same);  // by chance
    CHECK(after({50})[0].verdict == Difference::too_few);
    CHECK(after({90, 91, 89})[0].row == "pp512");
  }

  TEST_CASE("latencies are better when they are less") {
    const Json before = Json::array({workload_row({10, 10.1, 9.9}, 100, 5)});
    const auto changes = compare(before, Json::array({workload_row({20, 20.1, 19.9}, 200, 4)}), {});
    CHECK(verdict_of(changes, "out tok/s") == Difference::better);
    CHECK(verdict_of(changes, "TTFT ms") == Difference::worse);
    CHECK(verdict_of(changes, "TPOT ms") == Difference::better);
    CHECK(changes.size() == 3);  // nothing is known of E2EL
  }

  TEST_CASE("what was measured before and is not any more is a regression; what is new is none") {
    const Json both = Json::array({kernel_row(512, {100, 101}), kernel_row(64, {50, 51})});
    const Json one = Json::array({kernel_row(512, {100, 101})});
    const Json failed = Json::array({kernel_row(512, {100, 101}), kernel_row(64, {})});
    CHECK(has_regression(compare(both, one, {})));
    CHECK(has_regression(compare(both, failed, {})));
    CHECK_FALSE(has_regression(compare(one, both, {})));
    CHECK_FALSE(has_regression(compare(failed, both, {})));
    const Table table = compare_table(compare(both, one, {}));
    CHECK(markdown_text(table).find("MISSING") != std::string::npos);
  }

  TEST_CASE("files that are no outputs, and outputs with nothing in common") {
    const Json one = Json::array({kernel_row(512, {100, 101})});
    for (const Json& wrong : {Json::object(), Json::array(), Json::array({1, "x"}), Json(3)}) {
      CAPTURE(to_text(wrong));
      CHECK_THROWS_AS(compare(one, wrong, {}), Error);
      CHECK_THROWS_AS(compare(wrong, one, {}), Error);
    }
    CHECK_THROWS_AS(compare(one, Json::array({kernel_row(64, {1, 2})}), {}), Error);
    Json odd = one;
    odd[0]["samples_ts"] = "many";
    CHECK(has_regression(compare(one, odd, {})));
  }

  TEST_CASE("other machines and models are named") {
    Json before = Json::array({kernel_row(512, {1, 2})}), after = before;
    CHECK(setting_difference(before, after).empty());
    after[0]["model_filename"] = "other";
    CHECK(setting_difference(before, after) == "model_filename: demo and other");
  }
}

}  // namespace comparison_test
