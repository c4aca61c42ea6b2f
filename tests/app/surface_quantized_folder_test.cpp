#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "kernels/device.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_quantized_folder_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

ToolResult quantize(std::vector<std::string> arguments) {
  return run_command("quantize", std::move(arguments));
}

double divergence_of(const std::string& folder, const std::string& text) {
  const ToolResult result =
      run_tool({.arguments = {"eval", folder, "-", "-c", "64", "--against", "demo", "--json"},
                .input = text});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return parse_json(result.out, "stdout")["against"]["kl_mean"].get<double>();
}

}  // namespace

TEST_SUITE("app/surface_quantized_folder") {
  TEST_CASE("the demo in groups is a model, nearer to the demo with its own text") {
    const TemporaryFolder to;
    std::string text;
    for (int i = 1; i < 100; ++i) {
      text += "What is " + std::to_string(i % 40) + " plus " + std::to_string(i % 7) + "? It is " +
              std::to_string(i % 40 + i % 7) + ". ";
    }
    const std::string file = to.write("text.txt", text).string();
    const auto folder = [&](const char* name) { return (to.path() / name).string(); };
    const ToolResult plain = quantize({"demo", "-o", folder("plain"), "--calibrate", "off"});
    CHECK(plain.exit_code == 0);
    CHECK(contains(plain.err, "in int4-g128 (4.1"));
    CHECK(contains(plain.err, "as published: "));
    CHECK(contains(plain.err, "experts that are in one tensor (14)"));
    CHECK(quantize({"demo", "-o", folder("own"), "--calibrate", file}).exit_code == 0);
    // Scales below 0 are no defects.
    CHECK(run_tool({.arguments = {"inspect", folder("own"), "--check"}}).exit_code == 0);
    CHECK(quantize({"demo", "-o", folder("eights"), "--format", "int8"}).exit_code == 0);
    CHECK(divergence_of(folder("own"), text) < divergence_of(folder("plain"), text));
    CHECK(divergence_of(folder("eights"), text) < 0.1 * divergence_of(folder("own"), text));
    const ToolResult again = quantize({"demo", "-o", folder("own")});
    CHECK(again.exit_code == 2);
    CHECK(contains(again.err, "is not empty: give a folder that is empty"));
    CHECK(contains(quantize({folder("own"), "-o", folder("twice")}).err, "is quantised already"));
    if (kernels::best_isa() == kernels::Isa::plain) return;
    const auto weight_bytes = [&](const char* lossless) {
      const ToolResult inspect =
          run_tool({.arguments = {"inspect", folder("plain"), "--json", "--lossless", lossless}});
      return parse_json(inspect.out, "stdout")["weights_bytes"].get<std::int64_t>();
    };
    CHECK(weight_bytes("auto") < weight_bytes("off"));  // what stays bf16 takes 12 bits
  }

  TEST_CASE("what it takes is said") {
    const TemporaryFolder to;
    const std::string out = (to.path() / "out").string();
    CHECK(contains(quantize({"demo"}).err, "--output is required"));
    CHECK(contains(quantize({"demo", "-o", "/tmp/nosuch/out"}).err,
                   "/tmp/nosuch/out: can't be made"));
    const std::string few = to.write("few.txt", "What?").string();
    CHECK(contains(quantize({"demo", "-o", out, "--calibrate", few}).err, "fewer than 16"));
    CHECK(quantize({"demo", "-o", out, "--calibrate", "off"}).exit_code == 0);  // nothing is left
    CHECK(contains(quantize({"demo", "-o", "x", "--format", "q4"}).err, "int4-g32"));
    const std::string none = (to.path() / "none").string();
    CHECK(contains(quantize({"granite-4.0-h-tiny", "-o", none}).err,
                   "the configuration of a published model, without weights"));
    const std::string golden = std::string(HYB_TESTS_DIR) + "/golden/";
    const ToolResult narrow = quantize({golden + "qwen3-dense", "-o", none});
    CHECK(narrow.exit_code == 2);
    CHECK(contains(narrow.err, "none of its matrices can be in int4-g128"));
    CHECK(contains(narrow.err, "; --format int8 takes columns in eights"));
    const ToolResult odd = quantize({golden + "gemma2-odd", "-o", none, "--format", "int8"});
    CHECK(odd.exit_code == 2);
    CHECK(!contains(odd.err, "--format int8"));
    CHECK(contains(quantize({golden + "qwen3-dense", "-o", none, "--format", "int8"}).err,
                   "--calibrate off does without"));
    CHECK(!std::filesystem::exists(none));
  }
}

}  // namespace surface_quantized_folder_test
