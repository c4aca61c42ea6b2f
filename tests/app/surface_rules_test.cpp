// Answers that are bound by a schema, a grammar and the like, as a person and as scripts get them.
#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/app/batch_results.h"
#include "tests/app/run_tool.h"
#include "tests/support/ambiguous_grammar.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_rules_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr const char* schema = R"({"type":"object","properties":{
    "sum":{"type":"integer","minimum":0,"maximum":99},"words":{"type":"array","maxItems":3,
    "items":{"type":"string","maxLength":8}},"kind":{"enum":["sum","other"]}},
    "required":["sum","kind"],"additionalProperties":false})";

/// What is wrong with an answer by that schema.
std::string fault(const std::string& text) {
  const Json answer = Json::parse(text, nullptr, false);
  if (!answer.is_object()) return "no object: " + text;
  for (const auto& [key, value] : answer.items()) {
    const bool is_right = key == "sum"    ? value.is_number_integer() && value >= 0 && value <= 99
                          : key == "kind" ? value == "sum" || value == "other"
                                          : key == "words" && value.is_array() && value.size() <= 3;
    if (!is_right) return key + ": " + text;
  }
  return answer.contains("sum") && answer.contains("kind") ? "" : "incomplete: " + text;
}

ToolResult run(std::vector<std::string> arguments, const std::string& input = {}) {
  arguments.insert(arguments.begin() + 1, {"demo", "--threads", "1"});
  return run_tool({.arguments = std::move(arguments), .input = input});
}

std::string said(const std::vector<std::string>& options) {
  std::vector<std::string> all = {"run", "-p", "What is 12 plus 30?", "-n", "400"};
  all.insert(all.end(), options.begin(), options.end());
  const ToolResult result = run(all);
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  return result.out.substr(0, result.out.size() - 1);
}

std::string line(const std::string& id, const std::string& members) {
  return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/chat/completions","body":{)" +
         R"("messages":[{"role":"user","content":"What is 12 plus 30?"}],)" +
         (contains(members, "max_tokens") ? "" : R"("max_tokens":400,)") + members + "}}\n";
}

std::map<std::string, Json> by_id(const BatchJob& job) {
  std::map<std::string, Json> all;
  for (Json& result : results(job.out)) {
    const std::string id = result["custom_id"];
    all[id] = std::move(result);
  }
  return all;
}

std::string content_of(const Json& result, std::size_t choice = 0) {
  return result["response"]["body"]["choices"][choice]["message"]["content"];
}

}  // namespace

TEST_SUITE("app/surface_rules") {
  TEST_CASE("an answer is what the flags say that it must be") {
    const TemporaryFolder folder;
    for (const char* seed : {"1", "2", "3"}) {
      for (const char* temperature : {"0", "1", "3"}) {
        const std::vector<std::string> how = {"--seed", seed, "--temperature", temperature};
        const auto with = [&](std::vector<std::string> options) {
          options.insert(options.end(), how.begin(), how.end());
          return said(options);
        };
        CHECK(fault(with({"--json-schema", schema})) == "");
        const std::string mass = "[0-9]{2,5}(kg|m)";
        CHECK(std::regex_match(with({"--regex", mass}), std::regex(mass)));
        const std::string one = with({"--one-of", "yes", "no, never", "42"});
        CHECK((one == "yes" || one == "no, never" || one == "42"));
      }
    }
    CHECK(fault(said({"--json-schema", folder.write("s.json", schema).string()})) == "");
    const auto grammar = folder.write("g", "root ::= \"<\" root \">\" | [a-c]+ \".\"");
    CHECK(std::regex_match(said({"--grammar", grammar.string()}), std::regex("<*[a-c]+\\.>*")));
    CHECK(said({"--grammar", "root ::= \"hi\""}) == "hi");
    CHECK(run_shell("$HYB run -p x --grammar /dev/fd/3 3<&0 < /dev/null", "root ::= \"ho\"").out ==
          "ho\n");
    CHECK(said({"--json-object"}).starts_with("{"));
    const ToolResult chat = run({"chat", "--regex", "[a-z]{3}!"}, "Hello\nWhat is red?\n");
    CHECK(std::regex_match(chat.out, std::regex("[a-z]{3}!\n+[a-z]{3}!\n+")));
  }

  TEST_CASE("an answer that a limit cuts is not what its rule says, which is said") {
    const auto cut = [](std::vector<std::string> options) {
      options.insert(options.begin(), {"run", "-p", "x", "-n", "3"});
      return run(options);
    };
    const ToolResult bound = cut({"--regex", "a{100}"});
    CHECK(bound.exit_code == 0);
    CHECK(contains(bound.err, "the answer is cut by a limit"));
    CHECK(std::count(bound.err.begin(), bound.err.end(), '\n') == 1);
    CHECK(cut({"--regex", "a{100}", "--json"}).err == "");  // it has a finish_reason
    CHECK(cut({}).err == "");
  }

  TEST_CASE("a grammar that can't be followed fails its line, and no other") {
    const std::string rule = R"("grammar":)" + Json(ambiguous_grammar()).dump();
    const BatchJob job(line("free", R"("max_tokens":30)") + line("ambiguous", rule) +
                       line("bound", R"("guided_regex":"[0-9]{40}")"));
    for (const std::vector<std::string>& options :
         std::vector<std::vector<std::string>>{{}, {"--disaggregate"}, {"--spec", "ngram"}}) {
      CAPTURE(options);
      std::filesystem::remove(job.out);
      const ToolResult ran = job.run(options);
      CHECK(ran.exit_code == 5);
      std::map<std::string, Json> all = by_id(job);
      CHECK(contains(to_text(all["ambiguous"]["error"]), "grammar: too ambiguous"));
      CHECK(content_of(all["free"]) != "");
      CHECK(content_of(all["bound"]).size() == 40);
    }
  }

  TEST_CASE("what is wrong with a rule is one line, before a weight is read") {
    const auto wrong = [](const std::vector<std::string>& options) {
      std::vector<std::string> all = {"run", "-p", "x"};
      all.insert(all.end(), options.begin(), options.end());
      const ToolResult result = run(all);
      CHECK(result.exit_code == 2);
      CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
      return result.err;
    };
    CHECK(contains(wrong({"--json-schema", R"({"not":{}})"}), "not"));
    CHECK(contains(wrong({"--json-schema", R"({"$ref":"http://x/y"})"}), "$ref"));
    CHECK(contains(wrong({"--json-schema", R"({"enum":[]})"}), "--json-schema"));
    CHECK(contains(wrong({"--json-schema", "{"}), "--json-schema"));
    CHECK(contains(wrong({"--regex", "(a"}), "--regex"));
    CHECK(contains(wrong({"--regex", ""}), "--regex: is empty"));
    CHECK(contains(wrong({"--json-schema", ""}), "--json-schema: is empty"));
    CHECK(contains(wrong({"--json-schema", "[]"}), "--json-schema: is a JSON schema"));
    CHECK(contains(wrong({"--json-object", "--regex", "a"}), "--json-object and --regex both"));
    CHECK(contains(wrong({"--regex", "a+", "--stop", "b"}), "leave out stop strings"));
    CHECK(run({"run", "-p", "x", "--grammar", "/nonexistent"}).exit_code == 3);
    const TemporaryFolder folder;
    const std::string in = folder.write("in", "x").string(), out = in + ".out";
    CHECK(run({"chat", "--regex", "("}, "x\n").exit_code == 2);
    CHECK(run({"batch", in, "-o", out, "--regex", "("}).exit_code == 2);
    CHECK_FALSE(std::filesystem::exists(out));
  }

  TEST_CASE("every field of a body that binds is obeyed, or its line fails and names it") {
    const BatchJob job(
        line("json", R"("guided_json":{"type":"object","additionalProperties":false})") +
        line("outputs", R"("structured_outputs":{"json":{"const":{"a":[1,true]}}})") +
        line("schema", R"("json_schema":)" + Json::parse(schema).dump()) +
        line("grammar", R"("grammar":"root ::= [a-c] [a-c]?")") +
        line("choice", R"("guided_choice":["yes","no"],"n":3,"temperature":2)") +
        line("regex", R"("guided_regex":"[0-9]+ apples")") +
        line("allowed", R"("allowed_token_ids":[5],"max_tokens":7)") +
        line("least", R"("min_tokens":50)") +
        line("format", R"("response_format":{"type":"json_schema","json_schema":{"name":"x",)"
                       R"("strict":true,"schema":{"type":"boolean"}}})") +
        line("free", R"("response_format":{"type":"text"})") +
        line("words", R"("bad_words":["42"])") + line("echo", R"("echo":true)") +
        line("two", R"("grammar":"root ::= [a]","guided_regex":"a")") +
        line("keyword", R"("guided_json":{"type":"array","contains":{}})") +
        line("none", R"("guided_json":{"allOf":[{"type":"null"},{"type":"string"}]})") +
        line("cut", R"("guided_regex":"a{100}","max_tokens":5)"));
    const ToolResult ran = job.run();
    CHECK(ran.exit_code == 5);
    CHECK(contains(ran.err, "1 answer with a schema or grammar cut by a limit"));
    std::map<std::string, Json> all = by_id(job);
    CHECK(content_of(all["json"]).find_first_not_of("{} \n") == std::string::npos);
    CHECK(Json::parse(content_of(all["outputs"])) == Json::parse(R"({"a":[1,true]})"));
    CHECK(fault(content_of(all["schema"])) == "");
    CHECK(std::regex_match(content_of(all["grammar"]), std::regex("[a-c]{1,2}")));
    for (std::size_t choice = 0; choice < 3; ++choice) {
      const std::string answer = content_of(all["choice"], choice);
      CHECK((answer == "yes" || answer == "no"));
    }
    CHECK(std::regex_match(content_of(all["regex"]), std::regex("[0-9]+ apples")));
    CHECK(all["allowed"]["response"]["body"]["usage"]["completion_tokens"] == 7);
    const std::string repeated = content_of(all["allowed"]);
    CHECK(repeated.size() % 7 == 0);
    for (std::size_t i = 1; i < 7; ++i) {
      const std::size_t size = repeated.size() / 7;
      CHECK(repeated.substr(i * size, size) == repeated.substr(0, size));
    }
    CHECK(all["least"]["response"]["body"]["usage"]["completion_tokens"] >= 50);
    CHECK(contains("true false", content_of(all["format"])));
    CHECK(content_of(all["free"]) == said({}));
    CHECK(all["cut"]["response"]["body"]["choices"][0]["finish_reason"] == "length");
    for (const auto& [id, what] :
         std::map<std::string, std::string>{{"words", "bad_words"},
                                            {"echo", "echo"},
                                            {"two", "guided_regex and grammar both"},
                                            {"keyword", "contains"},
                                            {"none", "guided_json"}}) {
      CAPTURE(id);
      REQUIRE(all[id]["error"].is_object());
      CHECK(contains(all[id]["error"]["message"].get<std::string>(), what));
    }
  }

  TEST_CASE("with a schema, too, answers are those of hyb run, in every setting") {
    std::string input;
    for (int i = 0; i < 12; ++i) {
      input += R"({"id":")" + std::to_string(i) + R"(","prompt":"What is )" +
               std::to_string(i / 2) + R"( plus 30?","n":2,"temperature":)" +
               (i % 2 == 0 ? "0" : "1") + "}\n";
    }
    const BatchJob job(input);
    const auto batch = [&](const std::string& rule, const std::vector<std::string>& options) {
      std::vector<std::string> all = {"batch", job.in,          "-o", job.out, "-n",
                                      "400",   "--json-schema", rule};
      all.insert(all.end(), options.begin(), options.end());
      return run(all);
    };
    std::map<std::string, std::string> first;
    for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
             {"--parallel", "1", "--spec", "off", "--prefix-cache", "off"},
             {"--parallel", "8"},
             {"--parallel", "4", "--spec", "ngram", "--draft-steps", "5"},
             {"--parallel", "4", "--spec", "ngram", "--draft-steps", "4", "--draft-branches", "3",
              "--draft-tokens", "12"},
             {"--parallel", "4", "--disaggregate"},
             {"--parallel", "6", "--pool-memory", "6MB", "--audit"}}) {
      CAPTURE(options);
      std::filesystem::remove(job.out);
      const ToolResult ran = batch(schema, options);
      REQUIRE_MESSAGE(ran.exit_code == 0, ran.err);
      if (first.empty()) first = answers(job.out);
      CHECK(answers(job.out) == first);
    }
    for (const Json& result : results(job.out)) {
      CHECK(fault(content_of(result, 0)) == "");
      CHECK(fault(content_of(result, 1)) == "");
    }
    const ToolResult alone = run({"run", "--json-schema", schema, "-p", "What is 2 plus 30?", "-n",
                                  "400", "--temperature", "0"});
    CHECK(alone.out == content_of(by_id(job)["4"]) + "\n");
    const ToolResult other = batch(R"({"type":"null"})", {});
    CHECK(other.exit_code == 2);  // another job's output
    CHECK(contains(other.err, "rule"));
  }

  TEST_CASE("what a schema forces is drafted, and changes no answer") {
    const auto answer = [](const std::string& spec) {
      const ToolResult ran =
          run({"run", "--json", "-p", "What is 2 plus 30?", "-n", "60", "--temperature", "0",
               "--spec", spec, "--draft-steps", "5", "--json-schema",
               R"({"type":"object","properties":{"the number of guests":{"type":"boolean"}},)"
               R"("required":["the number of guests"],"additionalProperties":false})"});
      REQUIRE_MESSAGE(ran.exit_code == 0, ran.err);
      return Json::parse(ran.out);
    };
    const Json plain = answer("off"), drafted = answer("ngram");
    CHECK(drafted["choices"] == plain["choices"]);
    const Json& usage = drafted["usage"];
    CHECK(usage["completion_tokens_details"]["accepted_prediction_tokens"] > 3);
  }

  TEST_CASE("a message that is continued is bound as a whole") {
    const auto continued = [](const std::string& begun) {
      const BatchJob job(R"({"custom_id":"a","body":{"messages":[{"role":"user","content":"x"},)"
                         R"({"role":"assistant","content":)" +
                         Json(begun).dump() +
                         R"(}],"continue_final_message":true,"max_tokens":400,"guided_json":)" +
                         Json::parse(schema).dump() + "}}\n");
      job.run();
      return results(job.out).at(0);
    };
    const std::string begun = R"({"sum": 4)";
    CHECK(fault(begun + content_of(continued(begun))) == "");
    CHECK(contains(to_text(continued(R"({"sum": 400)")["error"]), "to be continued"));
  }
}

}  // namespace surface_rules_test
