#include "app/request/answer_rule.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace answer_rule_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;
using Form = AnswerRule::Form;

namespace {

std::optional<AnswerRule> of(const std::string& members) {
  return rule_of(parse_json("{" + members + "}", "body"));
}

}  // namespace

TEST_SUITE("app/answer_rule") {
  TEST_CASE("every spelling of a body becomes the same rules") {
    const std::string schema = R"({"type":"object"})";
    for (const char* const members :
         {R"("response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,)"
          R"("schema":{"type":"object"}}})",
          R"("response_format":{"type":"json_schema","schema":{"type":"object"}})",
          R"("response_format":{"type":"json_object","schema":{"type":"object"}})",
          R"("guided_json":{"type":"object"},"grammar":null)",
          R"("guided_json":"{\"type\":\"object\"}")",
          R"("structured_outputs":{"json":{"type":"object"},"regex":null})",
          R"("json_schema":{"type":"object"},"response_format":{"type":"text"})"}) {
      CAPTURE(std::string(members));
      const auto rule = of(members);
      REQUIRE(rule);
      CHECK(rule->form == Form::json_schema);
      CHECK(rule->text == schema);
    }
    CHECK(of(R"("response_format":{"type":"json_object"})")->form == Form::json_object);
    CHECK(of(R"("structured_outputs":{"json_object":true})")->form == Form::json_object);
    CHECK(of(R"("guided_regex":"a+")")->text == "a+");
    CHECK(of(R"("structured_outputs":{"regex":"a+"})")->form == Form::regex);
    CHECK(of(R"("guided_choice":["yes","no"])")->text == R"(["yes","no"])");
    CHECK(of(R"("structured_outputs":{"choice":["yes"]})")->form == Form::one_of);
    CHECK(of(R"("grammar":"root ::= \"a\"")")->form == Form::gbnf);
    CHECK(of(R"("guided_grammar":"root ::= \"a\"")")->source == "guided_grammar");
    CHECK_FALSE(of(R"("response_format":{"type":"text"},"guided_json":null)"));
    CHECK_FALSE(of(""));
  }

  TEST_CASE("what is wrong is named, and so are two that contradict") {
    for (const auto& [members, field] : std::initializer_list<std::pair<const char*, const char*>>{
             {R"("response_format":"text")", R"(response_format: is {"type":"text"})"},
             {R"("response_format":{"type":"xml"})", R"(response_format: is {"type":"text"})"},
             {R"("grammar":"")", "grammar: is empty"},
             {R"("guided_json":"")", "guided_json: is empty"},
             {R"("guided_json":" ")", "guided_json"},
             {R"("guided_regex":"")", "guided_regex: is empty"},
             {R"("structured_outputs":{"regex":""})", "structured_outputs.regex: is empty"},
             {R"("response_format":{"type":"json_schema","json_schema":{"schema":""}})",
              "response_format: is empty"},
             {R"("response_format":{"type":"json_schema","json_schema":{}})",
              "response_format: has"},
             {R"("guided_json":"{")", "guided_json"},
             {R"("guided_json":[1])", "guided_json: is a JSON schema"},
             {R"("guided_regex":{})", "guided_regex: is a text"},
             {R"("guided_choice":"yes")", "guided_choice: is a list"},
             {R"("structured_outputs":{"structural_tag":"x"})", "structured_outputs: has json"},
             {R"("structured_outputs":{"json_object":7})", "structured_outputs.json_object"},
             {R"("grammar":"root ::= [a]","response_format":{"type":"json_object"})",
              "response_format and grammar both"},
             {R"("structured_outputs":{"json":{},"regex":"a"})",
              "structured_outputs.json and structured_outputs.regex both"}}) {
      CAPTURE(std::string(members));
      CHECK(error_text([&] { of(members); }).starts_with(field));
    }
  }

  TEST_CASE("flags are files or texts") {
    const TemporaryFolder folder;
    RuleFlags flags;
    CHECK_FALSE(rule_of(flags));
    flags.json_schema = R"( {"type": "integer"})";
    CHECK(rule_of(flags)->text == R"({"type":"integer"})");
    CHECK(rule_of(flags)->source == "--json-schema");
    flags.json_schema = folder.write("schema.json", R"({"type":"integer"})").string();
    CHECK(rule_of(flags)->text == R"({"type":"integer"})");
    CHECK(rule_of(flags)->source == flags.json_schema);
    flags.regex = "a";
    CHECK(contains(error_text([&] { rule_of(flags); }), "and --regex both say"));
    flags = {};
    flags.one_of = {"yes", "no"};
    CHECK(rule_of(flags)->text == R"(["yes","no"])");
    flags = {};
    flags.grammar = folder.write("x.gbnf", "root ::= \"a\"").string();
    CHECK(rule_of(flags)->form == Form::gbnf);
    flags.grammar = "/nonexistent";
    CHECK_THROWS_AS(rule_of(flags), Error);
    flags = {};
    flags.json_schema = "true";
    CHECK(rule_of(flags)->text == "true");
    flags.json_schema = "[]";
    CHECK(error_text([&] { rule_of(flags); }).starts_with("--json-schema: is a JSON schema"));
    flags.json_schema = "\"x\"";
    CHECK(error_text([&] { rule_of(flags); }).starts_with("--json-schema"));
  }

  TEST_CASE("an empty flag or file is an error, not the lack of a rule") {
    const TemporaryFolder folder;
    const std::string empty = folder.write("empty", "").string();
    const auto error_of = [](const RuleFlags& flags) {
      return error_text([&] { rule_of(flags); });
    };
    CHECK(error_of({.json_schema = ""}).starts_with("--json-schema: is empty"));
    CHECK(error_of({.regex = ""}).starts_with("--regex: is empty"));
    CHECK(error_of({.json_schema = empty}).starts_with(empty + ": is empty"));
    CHECK(error_of({.grammar = empty}).starts_with(empty + ": is empty"));
  }
}

}  // namespace answer_rule_test
