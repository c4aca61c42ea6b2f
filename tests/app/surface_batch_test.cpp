#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_batch_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

std::vector<Json> results(const std::filesystem::path& path) {
  std::vector<Json> results;
  std::istringstream lines(content(path));
  for (std::string line; std::getline(lines, line);) results.push_back(parse_json(line, "result"));
  return results;
}

/// custom_id -> what matters of the result; fails on an id that occurs twice.
std::map<std::string, std::string> answers(const std::filesystem::path& path) {
  std::map<std::string, std::string> answers;
  for (const Json& result : results(path)) {
    const Json& response = result["response"];
    const std::string answer =
        response.is_null() ? to_text(result["error"]) : to_text(response["body"]["choices"]);
    CHECK(answers.emplace(result["custom_id"], answer).second);
  }
  return answers;
}

/// A folder with an input `in`; the output is `out`.
struct Job {
  explicit Job(const std::string& input) { folder.write("in", input); }

  ToolResult run(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"batch", in, "-o", out, "-n", "8", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool({.arguments = std::move(arguments)});
  }

  /// Runs it and sends a signal once there are more than `results` results.
  ToolResult stop(const std::string& signal, std::size_t results,
                  const std::string& options) const {
    // A shell's background job ignores SIGINT, which hyb would respect: env undoes it.
    return run_shell("env --default-signal=INT $HYB batch " + in + " -o " + out + " --threads 1 " +
                     options + " & while kill -0 $! && [ $(cat " + out +
                     " 2>/dev/null | wc -l) -le " + std::to_string(results) +
                     " ]; do sleep 0.01; done; kill -" + signal + " $!; wait $!");
  }

  TemporaryFolder folder;
  std::string in = (folder.path() / "in").string();
  std::string out = (folder.path() / "out").string();
};

std::string many_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += R"({"custom_id":"r-)" + std::to_string(i) + R"(","body":{"messages":[{"role":"user",)" +
            R"("content":"Question )" + std::to_string(i) + R"("}],"max_tokens":)" +
            std::to_string(4 + i % 20) + "}}\n";
  }
  return text;
}

}  // namespace

TEST_SUITE("app/surface_batch") {
  TEST_CASE("results are OpenAI's lines, stdout stays empty, a rerun has nothing to do") {
    const Job job("Hello\r\n\nWhat is red?\n");
    const ToolResult first = job.run();
    CHECK(first.exit_code == 0);
    CHECK(first.out.empty());
    const std::vector<Json> lines = results(job.out);
    REQUIRE(lines.size() == 2);
    for (const Json& line : lines) {
      CHECK(line["error"].is_null());
      CHECK(line["response"]["status_code"] == 200);
      const Json& body = line["response"]["body"];
      CHECK(body["object"] == "chat.completion");
      CHECK(body["usage"]["completion_tokens"].get<int>() <= 8);
      CHECK(body["choices"][0]["message"]["role"] == "assistant");
    }
    CHECK(answers(job.out).contains("line-1"));
    CHECK(answers(job.out).contains("line-3"));
    const std::string before = content(job.out);
    CHECK(job.run().exit_code == 0);
    CHECK(content(job.out) == before);
  }

  TEST_CASE("a line's answer is that of hyb run, whatever its neighbours are") {
    const Job job("Hello\nWhat is red?\nOne two three\n");
    REQUIRE(job.run().exit_code == 0);
    for (const Json& result : results(job.out)) {
      const std::string id = result["custom_id"];
      const char* prompt = id == "line-1"   ? "Hello"
                           : id == "line-2" ? "What is red?"
                                            : "One two three";
      const ToolResult alone = run_tool({.arguments = {"run", "-n", "8", "-p", prompt}});
      CHECK(alone.out ==
            result["response"]["body"]["choices"][0]["message"]["content"].get<std::string>() +
                "\n");
    }
  }

  TEST_CASE("bad lines are failed results and exit code 5, and can be tried again") {
    const Job job(
        "{\"id\":\"good\",\"prompt\":\"Hello\"}\n"
        "{\"id\":\"hot\",\"prompt\":\"x\",\"temperature\":-1}\n"
        "not json\n"
        "{\"id\":\"empty\",\"messages\":[]}\n"
        "{\"id\":\"n\",\"prompt\":\"x\",\"n\":1000}\n"
        "{\"id\":\"nothing\",\"prompt\":\"\"}\n"
        "{\"id\":\"text\",\"body\":{\"prompt\":\"Hello\",\"n\":2,\"logprobs\":1}}\n");
    CHECK(job.run().exit_code == 5);
    const auto all = answers(job.out);
    CHECK(all.size() == 7);
    int failed = 0;
    for (const Json& result : results(job.out)) {
      CHECK(result["response"].is_null() == !result["error"].is_null());
      failed += result["error"].is_null() ? 0 : 1;
      if (result["custom_id"] != "text") continue;
      const Json& body = result["response"]["body"];
      CHECK(body["object"] == "text_completion");
      REQUIRE(body["choices"].size() == 2);
      CHECK(body["choices"][1]["index"] == 1);
      CHECK(body["choices"][0]["logprobs"]["content"][0]["top_logprobs"].size() == 1);
    }
    CHECK(failed == 5);
    CHECK(all.contains("line-3"));
    CHECK(job.run().exit_code == 5);
    CHECK(job.run({"--retry-failed"}).exit_code == 5);
    CHECK(answers(job.out) == all);
    const ToolResult checked = run_tool({.arguments = {"batch", job.in, "--validate", "-n", "8"}});
    CHECK(checked.exit_code == 5);
    CHECK(std::count(checked.out.begin(), checked.out.end(), '\n') == 5);
  }

  TEST_CASE("another job's output is refused, unless forced") {
    const Job job("Hello\n");
    REQUIRE(job.run().exit_code == 0);
    const ToolResult other = job.run({"--temperature", "0.5"});
    CHECK(other.exit_code == 2);
    CHECK(contains(other.err, "temperature is 0.5, was null"));
    job.folder.write("in", "Hello\nWhat is red?\n");
    CHECK(job.run().exit_code == 2);
    CHECK(results(job.out).size() == 1);
    CHECK(job.run({"--force"}).exit_code == 0);
    CHECK(results(job.out).size() == 2);
    std::filesystem::remove(job.out + ".job");
    CHECK(job.run().exit_code == 2);
    CHECK(run_tool({.arguments = {"batch", job.in, "-o", job.in}}).exit_code == 2);
    CHECK(content(job.in) == "Hello\nWhat is red?\n");
  }

  TEST_CASE("what cannot start says so and leaves no output") {
    const Job job("{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"a\",\"prompt\":\"y\"}\n");
    const ToolResult twice = job.run();
    CHECK(twice.exit_code == 2);
    CHECK(contains(twice.err, "lines 1 and 2"));
    CHECK_FALSE(std::filesystem::exists(job.out));
    CHECK(run_tool({.arguments = {"batch", job.in}}).exit_code == 2);
    CHECK(run_tool({.arguments = {"batch"}}).exit_code == 2);
    CHECK(run_tool({.arguments = {"batch", "/nonexistent", "-o", job.out}}).exit_code == 3);
    CHECK(run_tool({.arguments = {"batch", "/nonexistent", job.in, "-o", job.out, "--validate"}})
              .exit_code == 2);
    const Job plain("x\n");
    CHECK(run_tool({.arguments = {"batch", "/nonexistent", plain.in, "-o", plain.out}}).exit_code ==
          3);
    CHECK_FALSE(std::filesystem::exists(plain.out));
    plain.folder.write("model/config.json", R"({"model_type":"martian"})");
    const std::string model = (plain.folder.path() / "model").string();
    CHECK(run_tool({.arguments = {"batch", model, plain.in, "-o", plain.out}}).exit_code == 3);
    CHECK_FALSE(std::filesystem::exists(plain.out));
    CHECK(plain.run({"--temperature", "-3"}).exit_code == 2);
  }

  TEST_CASE("stdin is an input too, and an ordered output has the input's order") {
    const Job job(many_lines(30));
    const ToolResult piped = run_tool(
        {.arguments = {"batch", "-", "-o", job.out, "--ordered"}, .input = many_lines(30)});
    CHECK(piped.exit_code == 0);
    const std::vector<Json> lines = results(job.out);
    REQUIRE(lines.size() == 30);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      CHECK(lines[i]["custom_id"] == "r-" + std::to_string(i));
    }
  }

  TEST_CASE("the order changes no answer, and the run says what it reused") {
    std::string text;
    const char* topics[] = {"the colour red", "a river", "the sea"};
    for (int i = 0; i < 24; ++i) {
      text += R"({"custom_id":")" + std::to_string(i) + R"(","body":{"messages":[)" +
              R"({"role":"system","content":"You are asked about )" + topics[i % 3] +
              R"(, and you answer in few and simple words."},{"role":"user","content":"Question )" +
              std::to_string(i % 7) + R"(?"}]}})" + "\n";
    }
    const Job deep(text);
    const ToolResult ran = deep.run({"--parallel", "4"});
    CHECK(ran.exit_code == 0);
    CHECK(contains(ran.err, "% are there to be reused"));
    const Json stats = parse_json(content(deep.out + ".job"), "job")["last_run"];
    CHECK(stats["answered"] == 24);
    CHECK(stats["sharable_tokens"].get<int>() * 2 > stats["planned_tokens"].get<int>());
    CHECK(stats["planned_tokens"] == stats["prompt_tokens"]);
    const Job flat(text);
    const ToolResult in_order = flat.run({"--order", "file"});
    CHECK(in_order.exit_code == 0);
    CHECK_FALSE(contains(in_order.err, "are there to be reused"));
    CHECK(answers(deep.out) == answers(flat.out));
    CHECK(deep.run({"--order", "file"}).exit_code == 0);  // it is the same job
    CHECK(run_tool({.arguments = {"batch", deep.in, "-o", deep.out, "--ordered", "--order",
                                  "depth-first"}})
              .exit_code == 2);
  }

  TEST_CASE("many choices of a request run its prompt once") {
    const std::string prompt(1500, 'x');
    for (const std::string cache : {"on", "off"}) {
      const Job job(R"({"custom_id":"n","body":{"prompt":")" + prompt +
                    R"(","n":7,"temperature":1,"max_tokens":5}})" + "\n");
      CHECK(job.run({"--prefix-cache", cache}).exit_code == 0);
      const Json body = results(job.out)[0]["response"]["body"];
      CHECK(body["choices"].size() == 7);
      const Json& usage = body["usage"];
      CHECK(usage["prompt_tokens"].get<int>() > 200);
      CHECK(usage["prefilled_tokens"].get<int>() == usage["prompt_tokens"].get<int>() + 6);
      CHECK(usage["reused_tokens"] == 0);
    }
  }

  TEST_CASE("killed again and again, a job ends with the results of an undisturbed run") {
    constexpr int lines = 1500;
    const Job calm(many_lines(lines));
    REQUIRE(calm.run({"--parallel", "4"}).exit_code == 0);
    const auto wanted = answers(calm.out);
    REQUIRE(wanted.size() == lines);

    const Job job(many_lines(lines));
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

  TEST_CASE("a signal stops the job with what is done, and says how to go on") {
    std::string endless;
    for (int i = 0; i < 500; ++i) endless += "tell me more\n";
    const Job job(endless);
    const std::string options = "-n 300 --ignore-eos --parallel 4";
    const ToolResult stopped = job.stop("TERM", 0, options);
    CHECK(stopped.exit_code == 143);
    CHECK(contains(stopped.err, "resume with: "));
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

  TEST_CASE("a disk that stays full ends with 1 and whole lines; the rerun goes on") {
    const Job job(many_lines(40));
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

}  // namespace surface_batch_test
