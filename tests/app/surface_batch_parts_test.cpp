#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/app/batch_results.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_batch_parts_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr int parts = 4;

struct PartsOfJob : BatchJob {
  using BatchJob::BatchJob;

  std::string output(int part) const { return out + "-" + std::to_string(part); }
  std::vector<std::string> outputs() const {
    std::vector<std::string> all;
    for (int part = 1; part <= parts; ++part) all.push_back(output(part));
    return all;
  }
  ToolResult answer(int part, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {
        "batch", in, "--part", std::to_string(part) + "/4", "-o", output(part), "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool({.arguments = std::move(arguments)});
  }
  static ToolResult merge(std::vector<std::string> outputs, const std::string& all) {
    outputs.insert(outputs.begin(), {"batch", "--merge"});
    outputs.insert(outputs.end(), {"-o", all});
    return run_tool({.arguments = std::move(outputs)});
  }
};

}  // namespace

TEST_SUITE("app/surface_batch_parts") {
  TEST_CASE("parts, one of them killed and repeated, merged are the results of one run") {
    const PartsOfJob job(many_lines(600));
    REQUIRE(run_tool({.arguments = {"batch", job.in, "-o", job.out, "--threads", "1"}}).exit_code ==
            0);
    const ToolResult killed =
        run_shell("$HYB batch " + job.in + " --part 2/4 -o " + job.output(2) +
                  " --threads 1 & while kill -0 $! && [ $(cat " + job.output(2) +
                  " 2>/dev/null | wc -l) -le 20 ]; do sleep 0.01; done; kill -KILL $!; wait $!");
    CHECK(killed.exit_code == 137);
    const std::string all = job.out + "-all";
    for (int part = 1; part <= parts; ++part) {
      if (part == 2) {
        const ToolResult early = PartsOfJob::merge({job.output(1), job.output(2)}, all);
        CHECK(contains(early.err, "of 4 parts there is no output of 3, 4"));
      }
      CHECK(job.answer(part).exit_code == 0);
    }
    const ToolResult merged =
        PartsOfJob::merge({job.output(3), job.output(1), job.output(4), job.output(2)}, all);
    CHECK(merged.exit_code == 0);
    CHECK(contains(merged.err, "600 lines of 4 parts, 0 failed"));
    CHECK(answers(all) == answers(job.out));
    const std::vector<Json> in_order = results(all);
    for (std::size_t i = 0; i < in_order.size(); ++i) {
      REQUIRE(in_order[i]["custom_id"] == "r-" + std::to_string(i));
    }
    // The whole job knows it, too.
    const ToolResult again =
        run_tool({.arguments = {"batch", job.in, "-o", all, "--threads", "1"}});
    CHECK(again.exit_code == 0);
    CHECK(contains(again.err, "600 lines, nothing left to do"));
  }

  TEST_CASE("outputs that are not all parts of one job are named") {
    const PartsOfJob job(many_lines(40));
    for (int part = 1; part <= parts; ++part) REQUIRE(job.answer(part).exit_code == 0);
    const std::string all = job.out + "-all";
    const auto error = [&](std::vector<std::string> outputs) {
      const ToolResult result = PartsOfJob::merge(std::move(outputs), all);
      CHECK(result.exit_code == 2);
      CHECK(!std::filesystem::exists(all));
      return result.err;
    };
    CHECK(contains(error({job.output(1), job.output(4)}), "of 4 parts there is no output of 2, 3"));
    CHECK(contains(error({job.output(1), job.output(1)}), "-1: is part 1/4, as "));
    CHECK(contains(error({}), "name the outputs"));
    CHECK(contains(error({job.in}), "in.job is missing"));

    const std::string whole = content(job.output(2));
    const std::string first = whole.substr(0, whole.find('\n') + 1);
    const auto error_with = [&](const std::string& text) {
      job.folder.write("out-2", text);
      return error(job.outputs());
    };
    CHECK(contains(error_with(first), "out-2: lacks "));
    CHECK(contains(error_with(whole + first), "is a second result of the same line"));
    CHECK(contains(error_with(whole + content(job.output(1))), "is not a result of part 2/4"));
    CHECK(contains(error_with(whole + "{}\n"), "is not a result"));
    // The last line was torn by a kill: the part is not finished.
    CHECK(contains(error_with(whole.substr(0, whole.size() - 20)),
                   "lacks 1 result of part 2/4: repeat the command that made it"));
    job.folder.write("out-2", whole);
    const std::string described = content(job.output(2) + ".job");
    job.folder.write("out-2.job", R"({"settings":{"part":"1/1"}})");
    CHECK(contains(error({job.output(2)}), "its job file is damaged"));
    job.folder.write("out-2.job", described);

    std::filesystem::remove(job.output(3));
    std::filesystem::remove(job.output(3) + ".job");
    REQUIRE(job.answer(3, {"--temperature", "0.5"}).exit_code == 0);
    CHECK(contains(error(job.outputs()), "--temperature"));
    job.folder.write("in", many_lines(41));
    CHECK(contains(error({job.output(1), job.output(2), job.output(4)}), "no output of 3"));
    const ToolResult grown = job.answer(1);
    CHECK(grown.exit_code == 2);
    CHECK(contains(grown.err, "belongs to another job"));
  }

  TEST_CASE("outputs that were moved with their input are merged") {
    const PartsOfJob job(many_lines(20));
    const std::string there = "cd " + job.folder.path().string() + " && ";
    CHECK(run_shell(there + "$HYB batch in --part 1/1 -o out-1 --threads 1").exit_code == 0);
    const ToolResult merged = run_shell("$HYB batch --merge " + job.output(1) + " -o " + job.out);
    CHECK(merged.exit_code == 0);
    CHECK(results(job.out).size() == 20);
    std::filesystem::remove(job.in);
    const ToolResult alone =
        run_shell("$HYB batch --merge " + job.output(1) + " -o " + job.out + "-2");
    CHECK(alone.exit_code == 2);
    CHECK(contains(alone.err, "its input in is neither here nor beside it"));
  }

  TEST_CASE("what cannot be split is refused") {
    const PartsOfJob job(many_lines(4));
    CHECK(contains(run_shell("cat " + job.in + " | $HYB batch --part 1/2 - -o " + job.out).err,
                   "--part needs a file"));
    CHECK(contains(job.run({"--part", "3/2"}).err, "give K/N"));
    CHECK(contains(job.run({"--part", "1/2", "--output-format", "text"}).err,
                   "--part needs --output-format jsonl"));
    CHECK(contains(run_tool({.arguments = {"batch", "a", "b", "c", "-o", "d"}}).err,
                   "are put together with --merge"));
    CHECK(contains(run_tool({.arguments = {"batch", "--merge", "a"}}).err, "--merge needs -o"));
    CHECK(
        contains(run_tool({.arguments = {"batch", "--merge", "a", "-o", "b", "--part", "1/2"}}).err,
                 "--merge answers nothing: leave --part out"));
  }
}

}  // namespace surface_batch_parts_test
