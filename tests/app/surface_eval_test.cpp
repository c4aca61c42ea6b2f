#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_eval_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

/// What the demo knows of, many times over in other words.
std::string text() {
  std::string all;
  for (const char* box : {"red", "blue", "green", "black"}) {
    for (const char* thing : {"coin", "key", "ring", "map"}) {
      all +=
          std::string("The ") + box + " box holds a " + thing + ". The bag holds a " + thing + ". ";
    }
  }
  return all;
}

ToolResult eval(std::vector<std::string> arguments) {
  return run_command("eval", std::move(arguments), text());
}

Json json_of(const ToolResult& result) {
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return parse_json(result.out, "stdout");
}

}  // namespace

TEST_SUITE("app/surface_eval") {
  TEST_CASE("a text from stdin, in words and as JSON") {
    const ToolResult words = eval({"-", "-c", "32"});
    CHECK(words.exit_code == 0);
    CHECK(words.err == "");
    CHECK(contains(words.out, "perplexity"));
    CHECK(contains(words.out, "windows of 32 tokens"));
    const Json json = json_of(eval({"demo", "-", "-c", "32", "--json"}));
    CHECK(json["windows"].get<int>() >= 4);
    CHECK(json["scored_tokens"].get<int>() == 15 * json["windows"].get<int>());
    CHECK(json["perplexity"].get<double>() > 1);
    CHECK(!json.contains("against"));
  }

  TEST_CASE("q4 is farther from the demo than q8, and the demo is not far from itself") {
    const auto divergence = [](const std::vector<std::string>& more) {
      std::vector<std::string> arguments = {"-", "-c",        "32",   "--windows",
                                            "4", "--against", "demo", "--json"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const Json json = json_of(eval(arguments));
      CHECK(json["windows"] == 4);
      CHECK(json["against"]["worst_windows"].size() == 3);
      return json["against"]["kl_mean"].get<double>();
    };
    CHECK(divergence({}) == 0);
    const double q8 = divergence({"--quantize", "q8"}), q4 = divergence({"--quantize", "q4"});
    CHECK(q8 > 0);
    CHECK(q4 > 2 * q8);
    CHECK(divergence({"--snapshots", "int8"}) > 0);
  }

  TEST_CASE("what cannot be measured is said") {
    const std::string golden = std::string(HYB_TESTS_DIR) + "/golden/";
    CHECK(contains(eval({}).err, "the text is missing"));
    CHECK(contains(eval({"demo", "-", "-m", "demo"}).err, "the model is given twice"));
    CHECK(contains(eval({"-", "-c", "4096"}).err, "give a longer text or a smaller --context"));
    CHECK(contains(eval({"-", "-c", "3"}).err, "a window has 4 tokens at least"));
    CHECK(contains(eval({"-", "-c", "32", "--against", golden + "granite-odd"}).err,
                   "tokenizer.json"));
    CHECK(contains(eval({"-", "-c", "32", "--against", golden + "granite-dense-nope"}).err,
                   "different vocabularies (1200 and 271 tokens)"));
    // In tokens of the other one the text is shorter than a window.
    CHECK(contains(eval({golden + "granite-dense-nope", "-", "-c", "400", "--against", "demo"}).err,
                   "different vocabularies (271 and 1200 tokens)"));
    const auto of_text = [](const std::string& input) {
      const ToolResult result = run_tool({.arguments = {"eval", "-", "-c", "4"}, .input = input});
      CHECK(result.exit_code != 0);
      return result.err;
    };
    CHECK(contains(of_text("a\xff\xfe not UTF-8 at all"), "UTF-8"));
    CHECK(contains(of_text(std::string("NUL \0 within a text", 20)), "it has NUL bytes"));
    CHECK(contains(of_text("ab"), "the text has 2 bytes, fewer than a window"));
    CHECK(contains(eval({"demo", "no-such-file"}).err, "no-such-file"));
  }
}

}  // namespace surface_eval_test
