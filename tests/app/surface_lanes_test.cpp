// Prompts that run beside answers, in the same memory: the answers are the same bytes.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/model/model_source.h"
#include "core/base/json.h"
#include "core/io/file.h"
#include "models/families.h"
#include "models/geometry.h"
#include "models/memory_layout.h"
#include "tests/app/random_model.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_lanes_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

/// One model of each kind of recurrence (SSD alone and beside attention, gated delta net with a
/// draft layer, short convolution), and of those with windows and with layers that share keys.
const std::vector<std::string> models = {"falcon-h1-groups",
                                         "granite-mamba-only",
                                         "granite-moe-nope",
                                         "gemma3n",
                                         "jamba",
                                         "kimi-linear",
                                         "lfm2-moe",
                                         "lfm3",
                                         "minimax",
                                         "olmo-hybrid",
                                         "nemotron-latent",
                                         "qwen3-next-odd",
                                         "qwen3_5-text",
                                         "zamba2-groups",
                                         "gpt-oss"};

}  // namespace

TEST_SUITE("app/surface_lanes") {
  TEST_CASE("a batch's answers are the same with a lane for prompts") {
    for (const std::string& name : models) {
      CAPTURE(name);
      const RandomModel model(name);
      const auto plain =
          answer_mixed(model, {"--parallel", "1", "--prefix-cache", "off", "--spec", "off"})
              .answers;
      CHECK(plain.size() == 24);
      check_answers(model, plain, {"--disaggregate"},
                    {{"--parallel", "8"},
                     {"--parallel", "1", "--prefix-cache", "off", "--spec", "off"},
                     {"--parallel", "8", "--ubatch", "7", "--prefill-threads", "2",
                      "--decode-threads", "2", "--audit"},
                     {"--parallel", "5", "--memory-mode", "flip", "--spec", "ngram",
                      "--draft-steps", "3", "--ubatch", "33"},
                     {"--parallel", "8", "--memory-mode", "flat", "--threads", "3"},
                     {"--parallel", "8", "--pool-memory", "700KB", "--audit"}});
    }
  }

  TEST_CASE("a batch's answers are the same with memory of its own for prompts") {
    for (const std::string& name : models) {
      CAPTURE(name);
      const RandomModel model(name);
      const auto plain =
          answer_mixed(model, {"--parallel", "1", "--prefix-cache", "off", "--spec", "off"})
              .answers;
      check_answers(model, plain, {"--disaggregate", "--prefill-device", "cpu:1"},
                    {{"--parallel", "8", "--audit"},
                     {"--parallel", "5", "--memory-mode", "flip", "--strict-vmm", "--spec", "ngram",
                      "--draft-steps", "3", "--ubatch", "33"},
                     {"--parallel", "8", "--memory-mode", "flat", "--threads", "3"},
                     {"--parallel", "8", "--pool-memory", "1400KB", "--ubatch", "48", "--audit"}});
    }
  }

  TEST_CASE("with drafts of the model's own layer, too") {
    const RandomModel model("qwen3-next-odd");
    const auto plain =
        answer_mixed(model, {"--parallel", "1", "--prefix-cache", "off", "--spec", "off"}).answers;
    const MixedAnswers drafted =
        answer_mixed(model, {"--parallel", "8", "--disaggregate", "--prefill-device", "cpu:1",
                             "--spec", "mtp", "--draft-steps", "3"});
    CHECK(drafted.answers == plain);
    CHECK(drafted.accepted + drafted.rejected > 0);
  }

  TEST_CASE("a batch's answers are the same where snapshots go to disk and come back") {
    const RandomModel model("granite-moe-nope");
    const auto plain =
        answer_mixed(model, {"--parallel", "1", "--prefix-cache", "off", "--spec", "off"}).answers;
    for (const std::string order : {"depth-first", "file"}) {
      CHECK(answer_mixed(model, {"--disaggregate", "--parallel", "8", "--disk-tier", "1GB",
                                 "--disk-tier-folder", model.path(), "--pool-memory", "350KB",
                                 "--order", order, "--audit"})
                .answers == plain);
    }
  }

  TEST_CASE("with int8 snapshots, too, where states are not rounded") {
    // Of windows and keys alone: what is reused is exact.
    for (const std::string name : {"gpt-oss", "lfm3"}) {
      CAPTURE(name);
      const RandomModel model(name);
      const auto plain = answer_mixed(model, {"--parallel", "1", "--prefix-cache", "off"}).answers;
      CHECK(answer_mixed(model, {"--parallel", "8", "--disaggregate", "--snapshots", "int8",
                                 "--pool-memory", "700KB"})
                .answers == plain);
      CHECK(answer_mixed(model, {"--parallel", "8", "--disaggregate", "--prefill-device", "cpu:1",
                                 "--snapshots", "int8", "--pool-memory", "1400KB"})
                .answers == plain);
    }
  }

  TEST_CASE("int8 snapshots go from one memory to another as they are") {
    for (const std::string name : {"granite-moe-nope", "qwen3_5-text"}) {
      CAPTURE(name);
      const RandomModel model(name);
      std::string first;
      for (int i = 0; i < 6; ++i) first += "a long message that is kept as a state of int8, ";
      const auto chat = [&](const std::vector<std::string>& more) {
        std::vector<std::string> all =
            model.arguments("chat", {"--snapshots", "int8", "--temperature", "0"});
        all.insert(all.end(), more.begin(), more.end());
        const ToolResult result = run_tool(
            {.arguments = all, .input = first + "\nsecond one\nthird one\n/undo\nagain\n"});
        CHECK_MESSAGE(result.exit_code == 0, result.err);
        return result.out;
      };
      CHECK(chat({"--disaggregate", "--prefill-device", "cpu:1"}) == chat({}));
    }
  }

  TEST_CASE("a chat's answers: undo, regen and a session that is loaded go on from what is kept") {
    for (const std::string name : {"granite-moe-nope", "lfm2-moe", "gemma3n"}) {
      check_chat(name, {"--disaggregate"});
    }
    check_chat("qwen3-next-odd", {"--disaggregate", "--spec", "mtp", "--draft-steps", "3"});
    const RandomHead head = RandomHead::eagle3("qwen3-dense", 120);
    check_chat("qwen3-dense", {"--disaggregate", "--draft-model", head.path()});
    for (const std::string name : {"granite-moe-nope", "gemma3n"}) {
      check_chat(name, {"--disaggregate", "--prefill-device", "cpu:1"});
    }
  }

  TEST_CASE("a batch whose workers and engine are killed has the same answers") {
    const ToolResult result =
        run_tool({.arguments = {HYB_TESTS_DIR "/../scripts/fuzz/kill_workers.py", HYB_BINARY,
                                "demo", "--workers", "6", "--launchers", "1", "--engines", "1",
                                "--lines", "60", "--life", "2"},
                  .program = "python3",
                  .time_max = std::chrono::seconds(900)});
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(contains(result.out,
                   "6 workers, 1 launchers (0 stopped) and 1 engines killed: every id once"));
  }

  TEST_CASE("flags that do not go together are refused before anything is read") {
    const auto error = [](const std::vector<std::string>& options) {
      std::vector<std::string> all = {"chat", "demo"};
      all.insert(all.end(), options.begin(), options.end());
      const ToolResult result = run_tool({.arguments = all});
      CHECK(result.exit_code == 2);
      return result.err;
    };
    CHECK(contains(error({"--prefill-threads", "2"}), "--prefill-threads: goes with --disagg"));
    CHECK(contains(error({"--decode-threads", "2"}), "--decode-threads: goes with --disagg"));
    CHECK(contains(error({"--disaggregate", "--draft-model", "demo"}), "use --spec ngram or mtp"));
    CHECK(contains(error({"--disaggregate", "--memory-mode", "flip", "--strict-vmm"}),
                   "does not fault"));
    CHECK(contains(error({"--disaggregate", "--threads", "4", "--prefill-threads", "2",
                          "--decode-threads", "1"}),
                   "--threads 4: is for both lanes"));
    CHECK(contains(error({"--disaggregate", "--threads", "4", "--prefill-threads", "4"}),
                   "--threads 4: is for both lanes"));
    CHECK(contains(error({"--prefill-device", "cpu:1"}), "--prefill-device: goes with --disagg"));
    CHECK(contains(error({"--disaggregate", "--prefill-device", "cuda1"}), "add --device cuda"));
    CHECK(contains(error({"--disaggregate", "--prefill-device", "gpu"}),
                   "is none of cpu, cuda0, cuda1"));
    CHECK(contains(error({"--disaggregate", "--decode-device", "cuda0"}), "add --device cuda"));
    CHECK(contains(error({"--disaggregate", "--prefill-device", "cpu:1", "--disk-tier", "1GB"}),
                   "a tier extends one memory"));
    const ToolResult kernels =
        run_tool({.arguments = {"bench", "demo", "--disaggregate", "-p", "8", "-n", "0"}});
    CHECK(kernels.exit_code == 2);
    CHECK(contains(kernels.err, "--disaggregate: tests of kernels"));
  }

  TEST_CASE("hyb fit counts both lanes") {
    const auto figures = [](const std::vector<std::string>& options) {
      std::vector<std::string> all = {"fit", "demo", "--memory", "200MB", "--json"};
      all.insert(all.end(), options.begin(), options.end());
      return parse_json(run_tool({.arguments = all}).out, "fit");
    };
    const Json alone = figures({}), two = figures({"--disaggregate"});
    CHECK(two["workspace_bytes"].get<double>() > 1.5 * alone["workspace_bytes"].get<double>());
    CHECK(two["total_bytes"].get<double>() <= two["budget_bytes"].get<double>());
    const Json apart = figures({"--disaggregate", "--prefill-device", "cpu:1"});
    CHECK(apart["pool_bytes"].get<double>() > 0.9 * two["pool_bytes"].get<double>());
    CHECK(apart["superblocks"].get<double>() < 0.6 * two["superblocks"].get<double>());
    CHECK(apart["total_bytes"].get<double>() <= apart["budget_bytes"].get<double>());
  }

  TEST_CASE("what is handed over is what the model keeps of a sequence, to the byte") {
    const ToolResult result = run_tool({.arguments = {"bench",
                                                      "demo",
                                                      "--disaggregate",
                                                      "--prefill-device",
                                                      "cpu:1",
                                                      "--dataset-name",
                                                      "random",
                                                      "--random-input-len",
                                                      "200",
                                                      "--random-output-len",
                                                      "8",
                                                      "--num-prompts",
                                                      "6",
                                                      "--max-concurrency",
                                                      "3",
                                                      "-r",
                                                      "1",
                                                      "-o",
                                                      "json",
                                                      "--ignore-eos",
                                                      "--prefix-cache",
                                                      "off",
                                                      "--ubatch",
                                                      "64",
                                                      "--spec",
                                                      "off"}});
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    const Json row = parse_json(result.out, "bench")[0];
    CHECK(row["completed"] == 6);
    CHECK(row["handovers"] == 6);
    const auto tokens = row["handover_tokens"].get<std::int64_t>();
    CHECK(tokens == 6 * 200);
    const ModelSource source = ModelSource::find("demo", {});
    const models::Config config = source.config();
    const models::Plan plan = models::family_of(config).plan(config);
    const models::Geometry geometry = models::geometry_of(plan);
    const std::int64_t pages =
        (200 + models::page_tokens_default - 1) / models::page_tokens_default;
    const MemoryLayout layout =
        models::memory_layout_of(geometry, {.pool_bytes = std::size_t{32} << 20, .flat = {}})
            .layout;
    const auto state = static_cast<std::int64_t>(layout.content_bytes(layout.slot_view()));
    const auto page = static_cast<std::int64_t>(geometry.page_bytes);
    CHECK(row["handover_bytes"].get<std::int64_t>() == 6 * (pages * page + state));
  }

  TEST_CASE("bench --preset pd-mix measures one lane and two, and says which has what") {
    const auto bench = [](const std::vector<std::string>& options) {
      std::vector<std::string> all = {"bench", "demo", "--preset", "pd-mix"};
      all.insert(all.end(), options.begin(), options.end());
      return run_tool({.arguments = all});
    };
    const std::vector<std::string> small = {
        "--running-answers", "2",  "--num-prompts",     "2", "--random-input-len", "300", "-r", "1",
        "--request-rate",    "20", "--prefill-threads", "1", "--decode-threads",   "2"};
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = small;
      all.insert(all.end(), more.begin(), more.end());
      return bench(all);
    };
    const ToolResult table = with({});
    CHECK_MESSAGE(table.exit_code == 0, table.err);
    for (const char* const text : {"| colocated     | 3 ", "| disaggregated | 2 + 1 ",
                                   "2 answers running, a prompt of 300 tokens every",
                                   "\nITL p99: ", "\nTTFT p50: ", "\nanswers: "}) {
      CHECK(contains(table.out, text));
    }
    const ToolResult json = with({"-o", "json"});
    CHECK_MESSAGE(json.exit_code == 0, json.err);
    const Json rows = parse_json(json.out, "pd-mix");
    REQUIRE(rows.size() == 2);
    for (const Json& row : rows) {
      CHECK(row["ttfts"].size() == 2);
      CHECK(row["itls"].size() > 2);
      CHECK(row["median_itl_ms"].get<double>() <= row["p99_itl_ms"].get<double>());
      CHECK(row["answer_tokens_per_s"].get<double>() > 0);
    }
    CHECK(contains(bench({"--svg", "plot.svg"}).err, "--plot: means nothing for --preset pd-mix"));
    CHECK(contains(bench({"--request-rate", "inf"}).err, "takes one finite rate"));
    CHECK(contains(bench({"--random-input-len", "64,128"}).err, "takes one value"));
    CHECK(contains(bench({"--memory", "60MB", "--random-input-len", "100000000"}).err, "-len"));
  }

  TEST_CASE("requests are measured with a lane for prompts") {
    const ToolResult result = run_tool(
        {.arguments = {"bench", "demo", "--disaggregate", "--dataset-name", "random",
                       "--random-input-len", "60", "--random-output-len", "8", "--num-prompts", "6",
                       "--max-concurrency", "3", "-r", "1", "-o", "json", "--ignore-eos"}});
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    const Json row = parse_json(result.out, "bench")[0];
    CHECK(row["completed"] == 6);
    CHECK(row["lanes"] == "disaggregated");
  }

  TEST_CASE("a sweep of both ways answers all requests, draws a plot and names the better way") {
    const TemporaryFolder folder;
    const auto sweep = [&](const std::vector<std::string>& options) {
      std::vector<std::string> all = {"bench",
                                      "demo",
                                      "--preset",
                                      "pd-sweep",
                                      "--scale-down",
                                      "32",
                                      "--num-prompts",
                                      "4",
                                      "--max-concurrency",
                                      "1,3",
                                      "-r",
                                      "1",
                                      "--seed",
                                      "3",
                                      "--decode-threads",
                                      "2",
                                      "--prefill-threads",
                                      "1"};
      all.insert(all.end(), options.begin(), options.end());
      return run_tool({.arguments = all});
    };
    const std::string file = (folder.path() / "sweep.svg").string();
    const ToolResult text = sweep({"--svg", file, "-o", "md"});
    CHECK_MESSAGE(text.exit_code == 0, text.err);
    for (const char* const part :
         {", 3 threads: 2 for answers, 1 for prompts\n", ", 3 threads\n", "| lanes ",
          "\nrandom 32+4, closed loop, 1 at once: tokens/s of the device: ",
          "\nrandom 32+4, closed loop, 3 at once: tokens/s of the device: "}) {
      CAPTURE(part);
      CHECK(contains(text.out, part));
    }
    const std::string svg = read_whole_file(file, 1U << 20);
    for (const char* const part :
         {"tokens/s per user", "tokens/s per device", ">colocated<", ">disaggregated<", ">3<"}) {
      CAPTURE(part);
      CHECK(contains(svg, part));
    }
    const Json rows = parse_json(sweep({"-o", "json"}).out, "sweep");
    REQUIRE(rows.size() == 4);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CHECK(rows[i]["completed"] == 4);
      CHECK(rows[i]["lanes"] == (i % 2 == 0 ? "colocated" : "disaggregated"));
      CHECK(rows[i]["n_threads"] == 3);
      CHECK(rows[i]["n_threads_prefill"] == (i % 2 == 0 ? 0 : 1));
      CHECK(rows[i]["output_tokens_per_s_per_user"].get<double>() > 0);
    }
  }
}

}  // namespace surface_lanes_test
