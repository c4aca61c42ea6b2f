#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/json.h"
#include "tests/app/batch_results.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_batch_rerun_test {

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("app/surface_batch_rerun") {
  TEST_CASE("another job's output is refused, unless forced") {
    const BatchJob job("Hello\n");
    REQUIRE(job.run().exit_code == 0);
    const ToolResult other = job.run({"--temperature", "0.5"});
    CHECK(other.exit_code == 2);
    CHECK(contains(other.err, "--temperature is 0.5, was not given"));
    job.folder.write("in", "Hallo\nWhat is red?\n");
    const ToolResult edited = job.run();
    CHECK(edited.exit_code == 2);
    CHECK(contains(edited.err, "(2 lines, 19 bytes), was "));
    CHECK(contains(edited.err, "--force takes every line whose number has a result as answered"));
    CHECK_FALSE(contains(edited.err, "xxh3"));
    CHECK(results(job.out).size() == 1);
    CHECK(job.run({"--force"}).exit_code == 0);
    CHECK(results(job.out).size() == 2);
    for (const bool is_there : {true, false}) {
      is_there ? void(job.folder.write("out.job", "x"))
               : void(std::filesystem::remove(job.out + ".job"));
      const ToolResult spoiled = job.run();
      CHECK(spoiled.exit_code == (is_there ? 3 : 2));
      CHECK(contains(spoiled.err, "choose another output, or go on with --force; --force takes"));
    }
    CHECK(run_tool({.arguments = {"batch", job.in, "-o", job.in}}).exit_code == 2);
    CHECK(content(job.in) == "Hallo\nWhat is red?\n");
  }

  TEST_CASE("lines added to the input of a finished job are answered, and only these") {
    for (const std::string end : {"\n", ""}) {  // with and without a line break at the end
      const BatchJob job("Hello\nWhat is red?" + end);
      REQUIRE(job.run().exit_code == 0);
      const std::string before = content(job.out);
      job.folder.write("in", "Hello\nWhat is red?\nWhat is blue?\n");
      const ToolResult more = job.run({"--quiet"});
      CHECK(more.exit_code == 0);
      CHECK(more.err.empty());
      CHECK(content(job.out).starts_with(before));
      CHECK(results(job.out).size() == 3);
      CHECK(contains(job.run().err, "3 lines, nothing left to do"));
      job.folder.write("in", "Hello\nWhat is red? What is blue?\n");  // is no added line
      CHECK(job.run().exit_code == 2);
    }
  }

  TEST_CASE("killed again and again, a job ends with the results of an undisturbed run") {
    constexpr int lines = 1500;
    const BatchJob calm(many_lines(lines));
    REQUIRE(calm.run({"--parallel", "4"}).exit_code == 0);
    const auto wanted = answers(calm.out);
    REQUIRE(wanted.size() == lines);

    const BatchJob job(many_lines(lines));
    std::mt19937 random(11);
    std::size_t done = 0;
    int cut_short = 0;
    for (int round = 0; round < 7; ++round) {
      const ToolResult killed = job.stop("KILL", done + random() % 150, "-n 8 --parallel 4");
      if (killed.exit_code == 128 + SIGKILL) ++cut_short;
      const std::string text = content(job.out);
      done = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
      if (round % 3 == 1) {  // a torn line, as a crash of the machine leaves it
        std::ofstream(job.out, std::ios::app) << R"({"id":"x","custom_id":"r-)";
      }
    }
    CHECK(cut_short > 0);
    CHECK(job.run({"--parallel", "4"}).exit_code == 0);
    CHECK(answers(job.out) == wanted);
  }

  TEST_CASE("killed again and again, lines of text and TSV end as those of an undisturbed run") {
    std::string input = "name,place\n";
    for (int i = 0; i < 300; ++i) {
      input += i % 7 == 3    ? "\n"
               : i % 50 == 9 ? "one field\n"
                             : "Bob,room " + std::to_string(i) + "\n";
    }
    for (const std::string format : {"text", "tsv"}) {
      const std::vector<std::string> words = {"--output-format", format, "--template",
                                              "Where is {name}? In {place}."};
      const BatchJob calm(input + "\n\n");
      REQUIRE(calm.run(words).exit_code == 5);
      const std::string wanted = content(calm.out);
      CHECK(std::count(wanted.begin(), wanted.end(), '\n') == 303);
      const BatchJob job(input + "\n\n");
      const std::string options = "-n 8 --parallel 4 --output-format " + format +
                                  " --template 'Where is {name}? In {place}.'";
      std::mt19937 random(5);
      std::size_t done = 0;
      int cut_short = 0;
      for (int round = 0; round < 5; ++round) {
        const ToolResult killed = job.stop("KILL", done + random() % 40, options);
        if (killed.exit_code == 128 + SIGKILL) ++cut_short;
        if (round % 2 == 1) std::ofstream(job.out, std::ios::app) << "a torn li";
        const std::string text = content(job.out);
        done = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
      }
      CHECK(cut_short > 0);
      CHECK(job.run(words).exit_code == 5);
      CHECK(content(job.out) == wanted);
      const ToolResult again = job.run(words);
      CHECK(contains(again.err, "nothing left to do, 5 failed"));
      CHECK(content(job.out) == wanted);
      job.folder.write("in", input + "\n\nBob,hall\n\n");  // lines that were added
      CHECK(job.run(words).exit_code == 5);
      const std::string more = content(job.out);
      CHECK(more.starts_with(wanted));
      CHECK(std::count(more.begin(), more.end(), '\n') == 305);
    }
  }

  TEST_CASE("another template or format is another job, and lines of text can't be forced") {
    const BatchJob job("Hello\n");
    const auto run = [&](const std::string& filling, const std::string& format, auto... more) {
      return job.run({"--template", filling, "--output-format", format, more...});
    };
    REQUIRE(run("Say {}", "text").exit_code == 0);
    CHECK(contains(run("Say: {}", "text").err, "--template is \"Say: {}\", was \"Say {}\""));
    CHECK(contains(run("Say {}", "tsv").err,
                   "--output-format is \"tsv\", was \"text\". Choose another output\n"));
    for (const char* flag : {"--force", "--retry-failed"}) {
      const ToolResult forced = run("Say {}", "text", std::string(flag));
      CHECK(forced.exit_code == 2);
      CHECK(contains(forced.err, "need --output-format jsonl"));
    }
    CHECK(contains(job.run({"--output-format", "tsv", "--order", "depth-first"}).err,
                   "need --order file"));
  }

  TEST_CASE("a signal stops the job with what is done, and says how to go on") {
    std::string endless;
    for (int i = 0; i < 500; ++i) endless += "tell me more\n";
    const BatchJob job(endless);
    const std::string options = "-n 300 --ignore-eos --parallel 4";
    const ToolResult stopped = job.stop("TERM", 0, options);
    CHECK(stopped.exit_code == 143);
    CHECK(contains(stopped.err, ".job beside it; resume with: "));
    CHECK(contains(stopped.err, "done "));
    const auto before = answers(job.out);
    CHECK(before.size() < 500);
    const ToolResult again = job.stop("INT", before.size(), options);
    CHECK(again.exit_code == 130);
    CHECK(contains(again.err, "resume with: "));
    const auto after = answers(job.out);
    CHECK(after.size() > before.size());
    CHECK(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  }

  TEST_CASE("an output that is deleted, moved or cut during a run ends it with 1") {
    const BatchJob job(many_lines(1000));
    const auto interfered = [&](const std::string& command) {
      std::filesystem::remove(job.out);
      return run_shell("cd " + job.folder.path().string() + " && { $HYB batch in -o out -n 8 " +
                       "--threads 1 & while [ $(cat out 2>/dev/null | wc -l) -le 2 ]; do sleep " +
                       "0.01; done; " + command + "; wait $!; }");
    };
    const ToolResult deleted = interfered("rm out");
    CHECK(deleted.exit_code == 1);
    CHECK(contains(deleted.err, "out: was deleted while results were written to it"));
    CHECK_FALSE(contains(deleted.err, "stays"));
    CHECK_FALSE(contains(deleted.err, "answered now"));
    const ToolResult cut = interfered(": > out");
    CHECK(cut.exit_code == 1);
    CHECK(contains(cut.err, "out: was cut to 0 bytes"));
    const ToolResult moved = interfered("mv out there");
    CHECK(moved.exit_code == 1);
    CHECK(contains(moved.err, "out: was moved or replaced"));
    // What its message says helps.
    std::filesystem::rename(job.folder.path() / "there", job.out);
    const auto before = answers(job.out);
    CHECK(before.size() > 2);
    const ToolResult rest = job.run({"--parallel", "16"});
    CHECK(rest.exit_code == 0);
    CHECK(answers(job.out).size() == 1000);
  }

  TEST_CASE("--ordered is refused over results that are not the input's first") {
    const BatchJob job(many_lines(30));
    REQUIRE(job.run().exit_code == 0);
    const std::string all = content(job.out);
    const ToolResult ordered = job.run({"--ordered"});
    CHECK(ordered.exit_code == 2);
    CHECK(contains(ordered.err, "--ordered: "));
    CHECK(contains(ordered.err, "before it, and results are only appended"));
    CHECK(content(job.out) == all);
    std::filesystem::remove(job.out);
    REQUIRE(job.run({"--ordered"}).exit_code == 0);
    const std::string in_order = content(job.out);
    std::filesystem::resize_file(job.out, in_order.size() / 2);
    CHECK(job.run({"--ordered"}).exit_code == 0);
    CHECK(results(job.out).back()["custom_id"] == "r-29");
    CHECK(answers(job.out).size() == 30);
  }

  TEST_CASE("the hint how to go on says what is true") {
    const BatchJob noted(many_lines(2000));
    noted.folder.write("out", "my notes\n");
    const ToolResult forced = noted.stop("TERM", 3, "-n 8 --force");
    CHECK(forced.exit_code == 143);
    CHECK(contains(forced.err, "--force\n"));  // without it the notes are an error again

    const auto changed = [](const std::string& command) {
      const BatchJob job(many_lines(2000));
      const ToolResult result =
          run_shell("$HYB batch " + job.in + " -o " + job.out + " --threads 1 & while [ $(cat " +
                    job.out + " 2>/dev/null | wc -l) -le 2 ]; do sleep 0.01; done; " + command +
                    " " + job.in + "; wait $!");
      CHECK(result.exit_code == 3);
      return result.err;
    };
    const std::string edited = changed("truncate -s -2");
    CHECK(contains(edited, "was changed meanwhile: undo that to resume"));
    CHECK_FALSE(contains(edited, "resume with: "));
    const std::string added = changed("echo '{\"prompt\":\"more\"}' >>");
    CHECK(contains(added, "lines were added to "));
    CHECK(contains(added, " meanwhile; resume with: "));
  }

  TEST_CASE("a byte of the weights that changes between two runs is noticed") {
    const BatchJob job(many_lines(40));
    const auto model = job.folder.path() / "model";
    std::filesystem::copy(HYB_TESTS_DIR "/golden/granite-dense-nope", model);
    const auto run = [&](const std::string& out) {
      return run_tool({.arguments = {"batch", model.string(), job.in, "-o", out, "--threads", "1"},
                       .environment = {{"XDG_STATE_HOME", job.folder.path().string()}}});
    };
    for (int i = 0; i < 20; ++i) {  // until one did not end before all was read
      REQUIRE(run(job.out).exit_code == 0);
      if (std::filesystem::exists(job.folder.path() / "hyb" / "weights.xxh3")) break;
      std::filesystem::remove(job.out);
    }
    std::filesystem::remove(job.out);
    REQUIRE(run(job.out).exit_code == 0);
    const std::string whole = content(job.out);
    const std::string half = whole.substr(0, whole.find('\n', whole.size() / 2) + 1);
    job.folder.write("out", half);
    const std::string job_before = content(job.out + ".job");
    CHECK(contains(job_before, "\"model.safetensors\""));

    const auto weights = model / "model.safetensors";
    const std::string good = content(weights);
    std::string bad = good;
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, good.data(), sizeof(header_bytes));
    char& byte = bad[sizeof(header_bytes) + header_bytes + 100];  // of a tensor of 34,688 bytes
    byte = static_cast<char>(byte ^ 1);
    job.folder.write("model/model.safetensors", bad);
    const ToolResult other = run(job.out);
    CHECK(other.exit_code == 2);
    CHECK(contains(other.err, "weight file model.safetensors has other bytes than it had"));
    CHECK(content(job.out) == half);
    CHECK(content(job.out + ".job") == job_before);
    job.folder.write("model/model.safetensors", good);
    CHECK(run(job.out).exit_code == 0);
    CHECK(answers(job.out).size() == 40);
  }

  TEST_CASE("a disk that stays full ends with 1 and whole lines; the rerun goes on") {
    const BatchJob job(many_lines(40));
    // The demo unpacks into a memory file, which the limit would catch as well: a folder does not.
    const std::string model = HYB_TESTS_DIR "/golden/granite-dense-nope";
    const ToolResult full = run_shell("ulimit -f 10; $HYB batch " + model + " " + job.in + " -o " +
                                      job.out + " -n 8 --threads 1 --retry-seconds 1");
    CHECK(full.exit_code == 1);
    CHECK(contains(full.err, "File too large"));
    CHECK(contains(full.err, "resume with: "));
    const std::size_t before = answers(job.out).size();
    CHECK(before > 0);
    CHECK(before < 40);
    CHECK(content(job.out).back() == '\n');
    const ToolResult rest = run_tool(
        {.arguments = {"batch", model, job.in, "-o", job.out, "-n", "8", "--threads", "1"}});
    CHECK(rest.exit_code == 0);
    CHECK(answers(job.out).size() == 40);
  }
}

}  // namespace surface_batch_rerun_test
