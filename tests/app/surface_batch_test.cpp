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

namespace surface_batch_test {

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("app/surface_batch") {
  TEST_CASE("results are OpenAI's lines, stdout stays empty, a rerun has nothing to do") {
    const BatchJob job("Hello\r\n\nWhat is red?\n");
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

  TEST_CASE("lines of text and TSV are where the lines of the input are") {
    const BatchJob job(
        "{\"prompt\":\"Hello\"}\n\n{\"id\":\"n\",\"prompt\":\"x\",\"n\":2}\n"
        "{\"id\":\"l\",\"body\":{\"prompt\":\"x\",\"logprobs\":1}}\n{\"prompt\":\"What is "
        "red?\"}\n\n");
    const ToolResult text = run_tool({.arguments = {"batch", job.in, "-o", "-", "-n", "8",
                                                    "--output-format", "text", "--quiet"}});
    CHECK(text.exit_code == 5);
    const auto answer = [](const char* prompt) {
      return run_tool({.arguments = {"run", "-n", "8", "-p", prompt}}).out;
    };
    CHECK(text.out == answer("Hello") + "\n\n\n" + answer("What is red?") + "\n");
    REQUIRE(job.run({"--output-format", "tsv"}).exit_code == 5);
    const std::string rows = content(job.out);
    CHECK(rows.starts_with("custom_id\tanswer\t"));
    CHECK(contains(rows, "\terror\nline-1\t"));
    CHECK(contains(rows, "\n\nn\t\terror\t\t\tinvalid_request: n: needs --output-format jsonl"));
    CHECK(contains(rows, "\nl\t\terror\t\t\tinvalid_request: logprobs: needs"));
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, rows.find('\n') + 1,
                                    rows.find("\n\nn\t") + 1, rows.size()}) {
      job.folder.write("out", rows.substr(0, bytes));
      CHECK(job.run({"--output-format", "tsv"}).exit_code == 5);
      CHECK(content(job.out) == rows);
    }
  }

  TEST_CASE("a line's answer is that of hyb run, whatever its neighbours are") {
    const BatchJob job("Hello\nWhat is red?\nOne two three\n");
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
    const BatchJob job(
        "{\"id\":\"good\",\"prompt\":\"Hello\"}\n"
        "{\"id\":\"hot\",\"prompt\":\"x\",\"temperature\":-1}\n"
        "not json\n"
        "{\"id\":\"empty\",\"messages\":[]}\n"
        "{\"id\":\"silent\",\"messages\":[{\"role\":\"user\"}]}\n"
        "{\"id\":\"n\",\"prompt\":\"x\",\"n\":1000}\n"
        "{\"id\":\"nothing\",\"prompt\":\"\"}\n"
        "{\"id\":\"text\",\"body\":{\"prompt\":\"Hello\",\"n\":2,\"logprobs\":1}}\n");
    CHECK(job.run().exit_code == 5);
    const auto all = answers(job.out);
    CHECK(all.size() == 8);
    CHECK(contains(all.at("silent"), "messages[0] has no content"));
    int failed = 0;
    for (const Json& result : results(job.out)) {
      CHECK(result["response"].is_null() == !result["error"].is_null());
      failed += result["error"].is_null() ? 0 : 1;
      if (result["custom_id"] != "text") continue;
      const Json& body = result["response"]["body"];
      CHECK(body["object"] == "text_completion");
      REQUIRE(body["choices"].size() == 2);
      CHECK(body["choices"][1]["index"] == 1);
      const Json& logprobs = body["choices"][0]["logprobs"];
      CHECK(logprobs["content"][0]["top_logprobs"].size() == 1);
      CHECK(logprobs["tokens"].size() == logprobs["content"].size());
    }
    CHECK(failed == 6);
    CHECK(all.contains("line-3"));
    CHECK(job.run().exit_code == 5);
    CHECK(job.run({"--retry-failed"}).exit_code == 5);
    CHECK(answers(job.out) == all);
    const ToolResult checked = run_tool({.arguments = {"batch", job.in, "--validate", "-n", "8"}});
    CHECK(checked.exit_code == 5);
    CHECK(std::count(checked.out.begin(), checked.out.end(), '\n') == 6);
  }

  TEST_CASE("completions have OpenAI's lists of log-probabilities, usage its cached tokens") {
    const std::string line =
        R"("body":{"prompt":"The red box holds a coin. The blue bag holds a key. The red )"
        R"(box holds a","max_tokens":6,"logprobs":2,"ignore_eos":true}})";
    const BatchJob job(R"({"custom_id":"a",)" + line + "\n" + R"({"custom_id":"b",)" + line + "\n");
    CHECK(job.run({"--parallel", "1"}).exit_code == 0);
    std::int64_t cached = 0;
    for (const Json& result : results(job.out)) {
      const Json& body = result["response"]["body"];
      const Json& lists = body["choices"][0]["logprobs"];
      std::string text;
      for (std::size_t i = 0; i < 6; ++i) {
        const std::string token = lists["tokens"][i];
        CHECK(lists["text_offset"][i] == text.size());  // all ASCII
        CHECK(lists["token_logprobs"][i] == lists["content"][i]["logprob"]);
        CHECK(lists["top_logprobs"][i].size() >= 2);
        CHECK(lists["top_logprobs"][i][token] == lists["token_logprobs"][i]);
        if (token != "<|end_of_text|>") text += token;  // after the answer, none of its text
      }
      CHECK(body["choices"][0]["text"] == text);
      const Json& usage = body["usage"];
      CHECK(usage["prompt_tokens_details"]["cached_tokens"] == usage["reused_tokens"]);
      cached = std::max<std::int64_t>(cached, usage["reused_tokens"]);
    }
    CHECK(cached > 0);
  }

  TEST_CASE("control tokens in texts to be continued: a warning, or --allow-special reads them") {
    const BatchJob job(R"({"body":{"prompt":"<|end_of_text|>Hello","max_tokens":1}})"
                       "\n"
                       R"({"body":{"prompt":"<|end_of_text|>Hello","max_tokens":1}})"
                       "\n");
    const auto prompt_tokens = [&] {
      const Json tokens = results(job.out)[0]["response"]["body"]["usage"]["prompt_tokens"];
      return tokens.get<int>();
    };
    const ToolResult plain = job.run();
    CHECK(plain.exit_code == 0);
    const std::size_t first = plain.err.find("control tokens");
    REQUIRE(first != std::string::npos);
    CHECK(plain.err.find("control tokens", first + 1) == std::string::npos);  // once
    const int many = prompt_tokens();
    CHECK(contains(job.run({"--allow-special"}).err, "--allow-special is given, was not given"));
    std::filesystem::remove(job.out);
    const ToolResult special = job.run({"--allow-special", "--force"});
    CHECK(special.exit_code == 0);
    CHECK_FALSE(contains(special.err, "control tokens"));
    CHECK(prompt_tokens() == 2);
    CHECK(many > 5);
    const BatchJob text("<|end_of_text|>Hello\n");
    CHECK(text.run({"--allow-special"}).exit_code == 2);
    CHECK(text.run({"--allow-special", "--raw"}).exit_code == 0);
  }

  TEST_CASE("fields that are not obeyed fail their line, unless --ignore-fields names them") {
    const BatchJob job(
        "{\"id\":\"a\",\"prompt\":\"Hello\",\"bad_words\":[\"42\"]}\n"
        "{\"id\":\"b\",\"prompt\":\"Hello\",\"label\":7}\n"
        "{\"id\":\"c\",\"prompt\":\"Hello\",\"user\":\"x\"}\n"
        "{\"id\":\"d\",\"body\":{\"prompt\":\"Hello\",\"reasoning_effort\":\"low\"}}\n"
        "{\"id\":\"e\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
        "\"documents\":[{\"text\":\"y\"}]}\n"
        "{\"id\":\"f\",\"body\":{\"prompt\":\"Hello\",\"label\":7}}\n"
        "{\"id\":\"g\",\"prompt\":\"Hello\",\"guided_json\":{\"not\":{}}}\n"
        "{\"id\":\"h\",\"prompt\":\"Hello\",\"temprature\":0}\n"
        "{\"id\":\"i\",\"prompt\":\"Hello\",\"label\":8}\n");
    const ToolResult first = job.run();
    CHECK(first.exit_code == 5);
    CHECK(contains(first.err, "label: is no parameter"));
    CHECK(first.err.find("label: ") == first.err.rfind("label: "));
    const auto all = answers(job.out);
    CHECK(contains(all.at("a"), "bad_words: only [] is obeyed, got"));
    CHECK_FALSE(contains(all.at("b"), "error"));
    CHECK(contains(all.at("f"), "label: is not obeyed"));
    CHECK(contains(all.at("g"), "guided_json"));
    CHECK(contains(all.at("h"), "or say temperature"));
    CHECK_FALSE(contains(all.at("i"), "error"));
    CHECK_FALSE(contains(all.at("c"), "error"));
    CHECK(contains(all.at("d"), "reasoning_effort: is for chats"));
    CHECK(contains(all.at("e"), "documents: the model's chat template does not read it"));
    std::filesystem::remove(job.out);
    const std::vector<std::string> ignoring = {"--force", "--ignore-fields",
                                               "bad_words,label,reasoning_effort,documents,"
                                               "guided_json,temprature"};
    CHECK(job.run(ignoring).exit_code == 0);
    CHECK(answers(job.out).at("a") == answers(job.out).at("c"));
    CHECK(job.run({"--ignore-fields", "prompt"}).exit_code == 2);
  }

  TEST_CASE("what cannot start says so and leaves no output") {
    const BatchJob job("{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"a\",\"prompt\":\"y\"}\n");
    const ToolResult twice = job.run();
    CHECK(twice.exit_code == 2);
    CHECK(contains(twice.err, "lines 1 and 2"));
    CHECK_FALSE(std::filesystem::exists(job.out));
    CHECK(run_tool({.arguments = {"batch", job.in}}).exit_code == 2);
    CHECK(run_tool({.arguments = {"batch"}}).exit_code == 2);
    CHECK(run_tool({.arguments = {"batch", "/nonexistent", "-o", job.out}}).exit_code == 3);
    CHECK(run_tool({.arguments = {"batch", "/nonexistent", job.in, "-o", job.out, "--validate"}})
              .exit_code == 2);
    const BatchJob plain("x\n");
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
    const BatchJob job(many_lines(30));
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
    const BatchJob deep(text);
    const ToolResult ran = deep.run({"--parallel", "4", "-v"});
    CHECK(ran.exit_code == 0);
    CHECK(contains(ran.err, "% are there to be reused"));
    const Json stats = parse_json(content(deep.out + ".job"), "job")["last_run"];
    CHECK(stats["answered"] == 24);
    CHECK(stats["sharable_tokens"].get<int>() * 2 > stats["planned_tokens"].get<int>());
    CHECK(stats["planned_tokens"] == stats["prompt_tokens"]);
    const BatchJob flat(text);
    const ToolResult in_order = flat.run({"--order", "file", "-v"});
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
      const BatchJob job(R"({"custom_id":"n","body":{"prompt":")" + prompt +
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

  TEST_CASE("what holds no lines of text is refused by name, and nothing is answered") {
    const auto refusal = [](std::string_view input) {
      const BatchJob job{std::string(input)};
      const ToolResult refused = job.run();
      CHECK(refused.exit_code == 3);
      CHECK_FALSE(std::filesystem::exists(job.out));
      return refused.err;
    };
    using namespace std::string_view_literals;
    CHECK(contains(refusal(R"([{"custom_id":"a","prompt":"hi"}])"), "is a JSON array"));
    CHECK(contains(refusal("\xff\xfeh\0i\0\n\0"sv), "is text in UTF-16, "));
    CHECK(contains(refusal("h\0i\0\n\0"sv), "is text in UTF-16LE, "));
    CHECK(contains(refusal("GGUF\x03\0\0\0hello\n"sv), "is a GGUF model"));
    CHECK(contains(refusal(content(HYB_TESTS_DIR "/golden/lfm2-dense/model.safetensors")),
                   "is a safetensors file"));
    CHECK(contains(refusal("PK\x03\x04hello\n"), "is a zip archive"));
  }

  TEST_CASE("results go to stdout where -o says so, and input comes from pipes") {
    const BatchJob job("Hello\nWhat is red?\n");
    REQUIRE(job.run().exit_code == 0);
    for (const char* name : {"-", "/dev/stdout"}) {
      const ToolResult streamed =
          run_tool({.arguments = {"batch", job.in, "-o", name, "-n", "8", "--threads", "1"}});
      CHECK(streamed.exit_code == 0);
      CHECK(contains(streamed.err, "results go to stdout: a run that ends early can't be"));
      const auto copy = job.folder.write("copy", streamed.out);
      CHECK(answers(copy) == answers(job.out));
    }
    const ToolResult closed = run_shell(
        "(yes tell me more | head -300 | $HYB batch - -o - -n 50; echo $? >&2) | head -1");
    CHECK(std::count(closed.out.begin(), closed.out.end(), '\n') == 1);
    CHECK(contains(closed.err, "results went to stdout, and can't be continued\n1\n"));
    CHECK(
        run_shell("(yes hi | head -300 | $HYB batch - -o - -n 9 -q; echo $? >&2) | head -1").err ==
        "1\n");
    CHECK(run_tool({.arguments = {"batch", job.in, "-o", "-", "--retry-failed"}}).exit_code == 2);

    const std::string options = " -n 8 --threads 1 -o ";
    const std::string piped = (job.folder.path() / "piped").string();
    CHECK(run_shell("cat " + job.in + " | $HYB batch /dev/stdin" + options + piped).exit_code == 0);
    CHECK(answers(piped) == answers(job.out));
    std::filesystem::remove(piped);
    const std::string fifo = (job.folder.path() / "fifo").string();
    CHECK(run_shell("mkfifo " + fifo + " && { cat " + job.in + " > " + fifo + " & $HYB batch " +
                    fifo + options + piped + "; }")
              .exit_code == 0);
    CHECK(answers(piped) == answers(job.out));
  }

  TEST_CASE("answers that the context ends are counted") {
    const BatchJob job(
        "{\"prompt\":\"a\",\"ignore_eos\":true}\n{\"prompt\":\"b\",\"max_tokens\":4}\n");
    const ToolResult cut = run_tool(
        {.arguments = {"batch", job.in, "-o", job.out, "--context", "64", "--threads", "1"}});
    CHECK(cut.exit_code == 0);
    CHECK(contains(cut.err, "; 1 answer ended at the 64 tokens of the context"));
  }

  TEST_CASE("damage in the disk tier changes no answer and is counted") {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      std::string topic;
      for (int word = 0; word < 150; ++word) topic += "topic " + std::to_string(i % 10) + " ";
      text += R"({"messages":[{"role":"system","content":")" + topic +
              R"("},{"role":"user","content":"Question )" + std::to_string(i) + R"(?"}]})" + "\n";
    }
    const BatchJob job(text);
    const std::string command = "$HYB batch " + job.in + " --order file --parallel 2 --threads 1 " +
                                "-n 4 --pool-memory 6MB --disk-tier 100MB --disk-tier-folder " +
                                job.folder.path().string() + " -o " + job.out;
    const ToolResult damaged = run_shell(
        command + " & while kill -0 $! 2>/dev/null; do for file in /proc/$!/fd/*; do case " +
        "\"$(readlink $file)\" in " + job.folder.path().string() +
        "*deleted*) size=$(stat -L -c %s $file 2>/dev/null); dd if=/dev/zero of=$file bs=64k " +
        "conv=notrunc count=$((${size:-0} / 65536)) 2>/dev/null;; " +
        "esac; done; sleep 0.02; done; wait $!");
    CHECK(damaged.exit_code == 0);
    CHECK(contains(damaged.err, "; the disk tier gave back "));
    CHECK(parse_json(content(job.out + ".job"), "job")["last_run"]["damaged_in_disk_tier"] > 0);
    const auto got = answers(job.out);
    std::filesystem::remove(job.out);
    const ToolResult sound = run_shell(command);
    CHECK(sound.exit_code == 0);
    CHECK_FALSE(contains(sound.err, "damaged"));
    CHECK(answers(job.out) == got);
  }

  TEST_CASE("--spec mtp: the answers of --spec off, with any sampling, batch, pages and prefixes") {
    const Json kinds = parse_json(R"([{"temperature":0},{"temperature":0.8,"seed":7},
        {"temperature":0.6,"seed":3,"frequency_penalty":0.7,"presence_penalty":0.4},
        {"temperature":0,"stop":["e","an"]},{"temperature":0.9,"seed":5,"n":2}])",
                                  "kinds");
    std::string lines;
    for (std::size_t i = 0; i < 15; ++i) {
      Json body = kinds[i % kinds.size()];
      body["max_tokens"] = 16 + i;
      body["messages"] = {{{"role", "user"},
                           {"content", "The same text before question " + std::to_string(i / 2)}}};
      lines += Json({{"custom_id", std::to_string(i)}, {"body", body}}).dump() + "\n";
    }
    const BatchJob job(lines);
    for (const std::string model : {"qwen3-next-odd", "qwen3_5-text", "nemotron-moe"}) {
      CAPTURE(model);
      const std::string folder = (std::filesystem::path(HYB_TESTS_DIR) / "golden" / model).string();
      std::map<std::string, std::string> plain;
      for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
               {"--spec", "off", "--parallel", "1"},
               {"--spec", "mtp", "--draft-steps", "3", "--parallel", "1"},
               {"--spec", "mtp", "--draft-steps", "7", "--parallel", "8", "--prefix-cache", "off"},
               {"--spec", "mtp", "--draft-steps", "5", "--parallel", "8", "--page-tokens", "32"},
               {"--spec", "mtp", "--parallel", "2", "--memory-mode", "flat"}}) {
        std::filesystem::remove(job.out);
        std::vector<std::string> all = {"-m", folder, "--memory", "200MB"};
        all.insert(all.end(), options.begin(), options.end());
        const ToolResult result = job.run(all);
        CHECK_MESSAGE(result.exit_code == 0, result.err);
        if (plain.empty()) plain = answers(job.out);
        CHECK(answers(job.out) == plain);
        std::int64_t drafts = 0;
        for (const Json& line : results(job.out)) {
          const Json details =
              line["response"]["body"]["usage"].value("completion_tokens_details", Json::object());
          drafts += details.value("accepted_prediction_tokens", 0) +
                    details.value("rejected_prediction_tokens", 0);
        }
        const bool is_fixed = std::ranges::find(options, "--draft-steps") != options.end();
        CHECK((!is_fixed || drafts > 500));
      }
      CHECK(plain.size() == 15);
    }
  }
}

}  // namespace surface_batch_test
