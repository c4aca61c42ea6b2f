#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"

namespace surface_memory_test {

using namespace hyb::testing;

namespace {

struct Pss {
  long largest = 0, least = 0;  ///< KiB
};

Pss pss_of_idle_chat(const std::string& mode, const std::string& seconds) {
  const ToolResult result =
      run_tool({.arguments = {HYB_TESTS_DIR "/app/pss_of_idle_chat.py", HYB_BINARY, mode, seconds},
                .program = "python3"});
  REQUIRE(result.exit_code == 0);
  Pss pss;
  std::istringstream(result.out) >> pss.largest >> pss.least;
  return pss;
}

}  // namespace

TEST_SUITE("app/surface_memory") {
  TEST_CASE("memory that nothing is in goes back to the machine") {
    // The keys and values of 12,000 tokens are 9 MiB.
    for (const std::string mode : {"remap", "flip"}) {
      CAPTURE(mode);
      const Pss pss = pss_of_idle_chat(mode, "0.3");
      CHECK(pss.largest > 16 * 1024);
      CHECK(pss.least < pss.largest - 4 * 1024);
    }
  }

  TEST_CASE("auto drafts by the checkpoint's layer where memory is left, and never alone for it") {
    const auto weights = [](const std::string& memory, const std::string& spec) {
      const ToolResult fit =
          run_tool({.arguments = {"fit", "qwen3.5-0.8b", "--lossless", "off", "--device", "cpu",
                                  "--memory", memory, "--spec", spec, "--json"}});
      REQUIRE(fit.exit_code == 0);
      return hyb::parse_json(fit.out, "fit")["weights_bytes"].get<std::size_t>();
    };
    CHECK(weights("8GB", "auto") == weights("8GB", "mtp"));
    CHECK(weights("8GB", "auto") > weights("8GB", "off"));
    CHECK(weights("1.9GB", "auto") == weights("1.9GB", "off"));
    CHECK(weights("8GB", "ngram") == weights("8GB", "off"));
  }

  TEST_CASE("--memory-idle is refused where it can have no effect") {
    for (const std::string command : {"chat", "batch"}) {
      std::vector<std::string> arguments = {command, "--memory-idle", "1", "--memory-mode", "flat"};
      if (command == "batch") arguments.insert(arguments.end(), {"-", "-o", "/nowhere/out"});
      const ToolResult result = run_tool({.arguments = arguments});
      CHECK(result.exit_code == 2);
      CHECK(contains(result.err, "--memory-idle: --memory-mode flat gives no memory back"));
    }
    const ToolResult run = run_tool({.arguments = {"run", "--memory-idle", "1", "-p", "x"}});
    CHECK(run.exit_code == 2);
    CHECK(contains(run.err, "--memory-idle"));
  }
}

namespace {

// Their shadow memory is part of the process, and no limit of ours.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif

}  // namespace

TEST_SUITE("app/surface_limits") {
  TEST_CASE("a batch stays within its budget, in memory and on disk" *
            doctest::skip(is_sanitized)) {
    const ToolResult result = run_tool(
        {.arguments = {HYB_TESTS_DIR "/../scripts/measure/measure.py", "limits", HYB_BINARY, "demo",
                       "--pool-memory", "32MB", "--beside", "26MB", "--disk-tier", "4MB",
                       "--requests", "200", "--tokens", "1000", "--option=--threads", "--option=2"},
         .program = "python3",
         .time_max = std::chrono::seconds(900)});
    CAPTURE(result.out);
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
    for (const char* mode : {"| remap |", "| flip |", "| flat |"}) {
      CHECK(contains(result.out, mode));
    }
  }
}

using namespace hyb;

namespace {

const std::string normed = HYB_TESTS_DIR "/golden/lfm2-dense";  // norms of q and k

}  // namespace

TEST_SUITE("app/surface_kv_dtype") {
  TEST_CASE("fit and inspect count half the bytes of bf16, and more fits") {
    const Home home;
    for (const char* const command : {"fit", "inspect"}) {
      const Json bf16 = home.json({command, "granite-4.0-h-micro", "--json"});
      const Json fp8 = home.json({command, "granite-4.0-h-micro", "--json", "--kv-dtype", "fp8"});
      CHECK(bf16["kv_dtype"] == "BF16");
      CHECK(fp8["kv_dtype"] == "F8_E4M3");
      CHECK(2 * fp8["kv_bytes_per_token"].get<int>() == bf16["kv_bytes_per_token"].get<int>());
      CHECK(fp8["state_bytes_per_sequence"] == bf16["state_bytes_per_sequence"]);
    }
    const auto longest = [&](const char* kv) {
      return home
          .json({"fit", "granite-4.0-h-micro", "--json", "--memory", "6.2GiB", "--lossless", "off",
                 "--kv-dtype", kv})["single_length_max"]
          .get<int>();
    };
    CHECK(longest("fp8") > 1.8 * longest("bf16"));
  }

  TEST_CASE("run, verify and bench with fp8") {
    const Home home;
    const ToolResult run = home.hyb({"run", "-p", "What is 12 plus 30?", "--kv-dtype", "fp8"});
    CHECK(run.exit_code == 0);
    CHECK(contains(run.out, "42"));
    for (const std::string& model : {std::string("demo"), normed}) {
      const Json verdicts = home.json(
          {"verify", model, "--json", "--prompts", "3", "--length", "90", "--kv-dtype", "fp8"});
      CHECK(verdicts["ok"] == true);
    }
    const Json rows = home.json({"bench", "-p", "16", "-n", "2", "-d", "0,40", "-r", "1", "-o",
                                 "json", "--kv-dtype", "fp8"});
    REQUIRE(rows.size() == 4);
    for (const Json& row : rows) {
      CHECK(row["type_k"] == "fp8");
      CHECK(row["type_v"] == "fp8");
      CHECK(row["status"] == "ok");
    }
  }

  TEST_CASE("a model without attention has no keys and values to choose a type of") {
    const Home home;
    const ToolResult fit = home.hyb({"fit", "mamba-codestral-7b", "--kv-dtype", "fp8"});
    CHECK(fit.exit_code == 2);
    CHECK(contains(fit.err, "--kv-dtype: mamba-codestral-7b has no attention"));
    CHECK(home.json({"fit", "mamba-codestral-7b", "--json"})["kv_bytes_per_token"] == 0);
  }

  TEST_CASE("a batch goes on with the type that it began with, and with no other") {
    const Home home;
    const std::string in = (home.folder.path() / "in.txt").string();
    const std::string out = (home.folder.path() / "out.jsonl").string();
    std::ofstream(in) << "a b c\nd e f\n";
    const std::vector<std::string> job = {"batch", normed, in, "-o", out, "-n", "4", "--kv-dtype"};
    const auto with = [&](const char* kv) {
      std::vector<std::string> arguments = job;
      arguments.emplace_back(kv);
      return home.hyb(std::move(arguments));
    };
    CHECK(with("fp8").exit_code == 0);
    CHECK(with("fp8").exit_code == 0);
    const ToolResult other = with("bf16");
    CHECK(other.exit_code == 2);
    CHECK(contains(other.err, "--kv-dtype is \"bf16\", was \"fp8\""));
  }

  TEST_CASE("a saved chat continues over its own type of pages, and is prefilled over others") {
    const std::vector<std::string> fp8 = {"--kv-dtype", "fp8"};
    const std::vector<std::string> saved = {"--kv-dtype", "fp8", "--session", "s"};
    const Home home;
    const std::string whole = home.chat(normed, "a\nb\nc\n", fp8).out;
    const std::string begin = home.chat(normed, "a\nb\n", saved).out;
    const ToolResult rest = home.chat(normed, "c\n/stats\n", saved);
    CHECK(rest.exit_code == 0);
    CHECK(!contains(rest.err, "prefilled again"));
    CHECK(contains(rest.err, " reused, "));
    CHECK(!contains(rest.err, "(0 reused, "));
    CHECK(begin + rest.out == whole);
    const ToolResult other = home.chat(normed, "d\n", {"--session", "s"});
    CHECK(other.exit_code == 0);
    CHECK(contains(other.err, "prefilled again"));
  }
}

}  // namespace surface_memory_test
