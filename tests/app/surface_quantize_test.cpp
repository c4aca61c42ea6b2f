#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "kernels/device.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"

namespace surface_quantize_test {

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("app/surface_quantize") {
  TEST_CASE("fit and inspect say the same of weights, by name and in bytes") {
    const Home home;
    for (const std::string model : {"demo", "granite-4.0-h-micro", "qwen3-next-80b-a3b"}) {
      double before = 0;
      for (const std::string quantize : {"none", "q8", "q4"}) {
        CAPTURE(model);
        CAPTURE(quantize);
        const auto with = [&](const char* command, bool json) {
          std::vector<std::string> arguments = {command,  model,        "--quantize",
                                                quantize, "--lossless", "off"};
          if (std::string(command) == "fit") {
            arguments.insert(arguments.end(), {"--memory", "1TiB", "--spec", "off"});
          }
          if (json) arguments.emplace_back("--json");
          return arguments;
        };
        const Json fit = home.json(with("fit", true)), inspect = home.json(with("inspect", true));
        CHECK(fit["quantize"] == quantize);
        CHECK(inspect["quantize"] == quantize);
        CHECK(fit["weights_bytes"] == inspect["weights_bytes"]);
        const double bytes = fit["weights_bytes"].get<double>();
        if (before > 0) CHECK(bytes < before);
        before = bytes;
        const std::string name = quantize == "none" ? "BF16" : quantize;
        const std::string fit_text = home.hyb(with("fit", false)).out;
        const std::string inspect_text = home.hyb(with("inspect", false)).out;
        CHECK(contains(fit_text.substr(fit_text.find("\nweights ")).substr(0, 60), name));
        CHECK(contains(inspect_text, " in memory, " + name + "\n"));
      }
    }
  }

  TEST_CASE("float16 weights take two bytes; --dtype bf16 rounds them and says so") {
    const Home home;
    const std::string folder = std::string(HYB_TESTS_DIR) + "/golden/qwen3-next-f16";
    const Json fit = home.json({"fit", folder, "--memory", "1GiB", "--json"});
    const Json as_bf16 = home.json(
        {"fit", folder, "--memory", "1GiB", "--json", "--dtype", "bf16", "--lossless", "off"});
    CHECK(fit["dtype"] == "F32");
    CHECK(fit["weights_bytes"] == as_bf16["weights_bytes"]);
    CHECK(contains(home.hyb({"inspect", folder}).out, " in memory, F16\n"));

    const std::string line =
        "matrices, F16 in the files, were rounded to bf16, once; "
        "--dtype f32 keeps them exact\n";
    for (const std::string dtype : {"auto", "f32", "bf16"}) {
      CAPTURE(dtype);
      const ToolResult result =
          home.hyb({"bench", folder, "-p", "4", "-n", "1", "-r", "1", "--dtype", dtype});
      CHECK(result.exit_code == 0);
      CHECK(contains(result.out, dtype == "bf16" ? "qwen3_next BF16" : "qwen3_next F16"));
      CHECK(contains(result.err, line) == (dtype == "bf16"));
    }
  }

  TEST_CASE("a float16 preset, too, and what does not fit is offered --dtype bf16") {
    const Home home;
    std::filesystem::path folder = home.folder.path() / "half";
    std::filesystem::create_directory(folder);
    std::string config = read_whole_file(
        std::filesystem::path(HYB_TESTS_DIR) / "../models/presets/qwen3.5-35b-a3b/config.json",
        1 << 20);
    const std::string name = "bfloat16";
    for (std::size_t at; (at = config.find(name)) != std::string::npos;) {
      config.replace(at, name.size(), "float16");
    }
    std::ofstream(folder / "config.json") << config;
    const Json half = home.json({"fit", folder.string(), "--memory", "1TiB", "--json"});
    const Json published =
        home.json({"fit", "qwen3.5-35b-a3b", "--memory", "1TiB", "--json", "--lossless", "off"});
    // The draft layer's copy of the head in q4 goes with bf16 alone.
    constexpr std::int64_t head_copy = std::int64_t{248320} * 2048 * 9 / 16;
    CHECK(half["weights_bytes"].get<std::int64_t>() + head_copy == published["weights_bytes"]);
    const ToolResult refused = home.hyb({"fit", folder.string(), "--memory", "60GiB"});
    CHECK(refused.exit_code == 4);
    CHECK(contains(refused.err, "--dtype bf16 makes keys, values and activations smaller"));
    CHECK(home.hyb({"fit", "qwen3.5-35b-a3b", "--memory", "60GiB"}).exit_code == 0);
    const ToolResult other =
        home.hyb({"fit", "qwen3.5-35b-a3b", "--memory", "60GiB", "--lossless", "off"});
    CHECK(other.exit_code == 4);
    CHECK(contains(other.err, "--lossless on makes it fit with the same answers"));
    CHECK(!contains(other.err, "--dtype bf16"));
    const ToolResult wide =
        home.hyb({"fit", "qwen3.5-35b-a3b", "--memory", "60GiB", "--dtype", "f32"});
    CHECK(contains(wide.err, "--dtype bf16 makes the weights, keys, values and activations"));
  }

  TEST_CASE("beside --dtype f32 it is a usage error, of every command that has it") {
    const Home home;
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"fit", "demo"},
                                                      {"inspect", "demo"},
                                                      {"run", "-p", "x"},
                                                      {"bench", "-p", "8"},
                                                      {"verify"}}) {
      CAPTURE(arguments.front());
      std::vector<std::string> words = arguments;
      words.insert(words.end(), {"--quantize", "q8", "--dtype", "f32"});
      const ToolResult result = home.hyb(words);
      CHECK(result.exit_code == 2);
      CHECK(contains(result.err, "--quantize: quantised weights are for bf16 activations"));
    }
  }

  TEST_CASE("--lossless on: the same answers from weights of three quarters of the size") {
    const Home home;
    const std::string golden = std::string(HYB_TESTS_DIR) + "/golden/";
    for (const std::string& model : {std::string("demo"), golden + "nemotron-moe",
                                     golden + "qwen3-next-odd", golden + "lfm2-dense"}) {
      CAPTURE(model);
      const auto answer_of = [&](const char* choice) {
        return home.json({"run", model, "--raw", "-p", "The cat", "-n", "12", "--ignore-eos",
                          "--dtype", "bf16", "--lossless", choice, "--json", "--logprobs", "3"});
      };
      const Json plain = answer_of("off"), narrow = answer_of("on");
      CHECK(plain["choices"] == narrow["choices"]);
    }
    const Json off = home.json({"inspect", "granite-4.0-h-tiny", "--json", "--lossless", "off"});
    const Json on = home.json({"inspect", "granite-4.0-h-tiny", "--json", "--lossless", "on"});
    CHECK(on["lossless"] == true);
    CHECK(on["weights_bytes"].get<double>() < 0.77 * off["weights_bytes"].get<double>());
    CHECK(contains(home.hyb({"inspect", "demo", "--lossless", "on"}).out, "BF16 in 12 bits"));
    const ToolResult run =
        home.hyb({"run", "demo", "-p", "Hello", "-n", "1", "-v", "--lossless", "on"});
    CHECK(contains(run.err, "[weights BF16 in 12 bits, load "));
    const ToolResult coded = home.hyb({"fit", "demo", "--lossless", "on", "--quantize", "q8"});
    CHECK(coded.exit_code == 2);
    CHECK(contains(coded.err, "--lossless on: leave out --quantize"));
    const ToolResult wide = home.hyb({"fit", "demo", "--lossless", "on", "--dtype", "f32"});
    CHECK(wide.exit_code == 2);
    CHECK(contains(wide.err, "--lossless on: is for bf16 weights"));
  }

  TEST_CASE("--lossless auto is on for few sequences, and where bf16 takes most of the memory") {
    if (kernels::best_isa() == kernels::Isa::plain) return;
    const Home home;
    const auto is_lossless = [&](std::vector<std::string> words) {
      words.insert(words.begin(), "fit");
      words.emplace_back("--json");
      const ToolResult fit = home.hyb(words);  // whether it fits or not
      return parse_json(fit.out, "stdout")["lossless"].get<bool>();
    };
    CHECK(is_lossless({"demo"}));
    CHECK(is_lossless({"demo", "--parallel", "16"}));
    CHECK_FALSE(is_lossless({"demo", "--parallel", "17"}));
    CHECK_FALSE(is_lossless({"demo", "--dtype", "f32"}));
    CHECK_FALSE(is_lossless({"demo", "--quantize", "q8"}));
    const Json micro = home.json({"inspect", "granite-4.0-h-micro", "--lossless", "off", "--json"});
    const auto wide = micro["weights_bytes"].get<std::int64_t>();
    const std::string more = std::to_string(wide * 2), little = std::to_string(wide * 5 / 4);
    CHECK_FALSE(is_lossless({"granite-4.0-h-micro", "--parallel", "17", "--memory", more}));
    CHECK(is_lossless({"granite-4.0-h-micro", "--parallel", "17", "--memory", little}));
    const ToolResult refused = home.hyb({"fit", "granite-4.0-h-micro", "--lossless", "off",
                                         "--context", "1000", "--memory", std::to_string(wide)});
    CHECK(refused.exit_code != 0);
    CHECK(contains(refused.err, "--lossless on makes it fit with the same answers"));
  }

  TEST_CASE(
      "a log of level debug shows what became of the weights; fit and inspect go by samples of the "
      "files") {
    if (kernels::best_isa() == kernels::Isa::plain) return;
    const Home home;
    const auto log_of = [&](const char* tokens) {
      return home.hyb({"--log-level", "debug", "run", "demo", "-p", "Hi", "-n", tokens}).err;
    };
    CHECK(contains(log_of("20"), " matrices in 12 bits"));
    CHECK_FALSE(contains(log_of("1"), " matrices in 12 bits"));  // packing them takes longer
    const Json fit = home.json({"fit", "demo", "--json"});
    const Json inspect = home.json({"inspect", "demo", "--json"});
    CHECK(fit["weights_bytes"] == inspect["weights_bytes"]);
    CHECK(fit["weights_bytes"] < fit["weights_bytes_max"]);
    REQUIRE(!inspect["lossless_matrices"].empty());
    for (const Json& matrix : inspect["lossless_matrices"]) {
      CHECK(matrix["bits"] == 12);
      CHECK(matrix["patches"].get<double>() < 1e-3);
    }
    CHECK(contains(home.hyb({"inspect", "demo", "--tensors"}).out, "patches  bits"));
    CHECK(contains(home.hyb({"fit", "demo"}).out, "by samples of the files"));
    CHECK(contains(home.hyb({"fit", "granite-4.0-h-micro"}).out, "if it never does"));
  }

  TEST_CASE("a batch goes on with the weights that it began with, and with no others") {
    const Home home;
    const std::string in = (home.folder.path() / "in.txt").string();
    const std::string out = (home.folder.path() / "out.jsonl").string();
    std::ofstream(in) << "a b c\nd e f\n";
    const auto with = [&](const char* quantize) {
      return home.hyb({"batch", "demo", in, "-o", out, "-n", "4", "--quantize", quantize});
    };
    CHECK(with("q8").exit_code == 0);
    CHECK(with("q8").exit_code == 0);
    for (const char* other : {"q4", "none"}) {
      const ToolResult refused = with(other);
      CHECK(refused.exit_code == 2);
      CHECK(contains(refused.err, "quantize"));
    }
  }

  TEST_CASE("a saved chat continues over its own kind of weights, and is prefilled over others") {
    const Home home;
    const auto stats = [&](const char* quantize) {
      return home.chat("demo", "b\n/stats\n", {"--session", "s", "--quantize", quantize}).err;
    };
    CHECK(home.chat("demo", "a\n", {"--session", "s", "--quantize", "q8"}).exit_code == 0);
    const std::string same = stats("q8");
    CHECK(!contains(same, "prefilled again"));
    CHECK(contains(same, " reused, "));
    CHECK(!contains(same, "(0 reused, "));
    CHECK(contains(stats("none"), "prefilled again"));
  }
}

}  // namespace surface_quantize_test
