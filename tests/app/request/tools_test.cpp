#include "app/request/tools.h"

#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/request/prompt.h"
#include "core/base/error.h"
#include "tests/app/chat/chat_texts.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace tools_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

Json json(const std::string& text) { return parse_json(text, "test"); }

/// A fixture's tokenizer with these tokens.
Tokenizer with(std::initializer_list<const char*> spellings) {
  const std::filesystem::path folder =
      std::filesystem::path(HYB_TESTS_DIR) / "golden/granite-dense-nope";
  Json file = json(content(folder / "tokenizer.json"));
  std::int32_t id = 5000;
  for (const char* spelling : spellings) {
    file["added_tokens"].push_back({{"id", id++}, {"content", spelling}, {"special", true}});
  }
  return Tokenizer::from_json(to_text(file), "tokenizer.json",
                              content(folder / "tokenizer_config.json"));
}

}  // namespace

TEST_SUITE("app/tools") {
  TEST_CASE(
      "what an answer must be by tool_choice: a list of calls, schemas with their references") {
    const std::string tools = R"("tools": [{"function": {"name": "f", "parameters": {"properties":
        {"a": {"$ref": "#/$defs/x"}, "$ref": {"items": {"$ref": "#"}}}, "$defs": {"x": {}}}}},
        {"function": {"name": "g"}}])";
    const auto schema = [&](const std::string& choice) {
      return call_schema(json("{" + tools + R"(, "tool_choice": )" + choice + "}"));
    };
    for (const char* free : {"null", R"("auto")", R"("none")"}) CHECK_FALSE(schema(free));
    const Json any = *schema(R"("required")");
    CHECK(any["minItems"] == 1);
    CHECK_FALSE(any.contains("maxItems"));
    CHECK(any["items"]["anyOf"].size() == 2);
    CHECK(any["$defs"]["0"] == json(R"({"properties": {"a": {"$ref": "#/$defs/0/$defs/x"},
              "$ref": {"items": {"$ref": "#/$defs/0"}}}, "$defs": {"x": {}}, "type": "object"})"));
    CHECK(any["$defs"]["1"] == json(R"({"type": "object"})"));
    const Json one = *schema(R"({"type": "function", "function": {"name": "g"}})");
    CHECK(one["maxItems"] == 1);
    CHECK(one["items"]["anyOf"] ==
          json(R"([{"type": "object", "properties": {"name": {"const": "g"}, "arguments": {"$ref":
              "#/$defs/0"}}, "required": ["name", "arguments"], "additionalProperties": false}])"));
    for (const char* wrong : {R"("f")", "5", R"({"type": "function"})",
                              R"({"type": "function", "function": {"name": "h"}})"}) {
      CHECK(error_text([&] { schema(wrong); }).starts_with("tool_choice: "));
    }
    CHECK(error_text([] {
            call_schema(json(R"({"tool_choice": "required"})"));
          }).starts_with("tool_choice: tools has no function"));
  }

  TEST_CASE("calls are found in the template's form, else in the vocabulary's") {
    const auto begin = [](const char* family, const Tokenizer& tokenizer, bool is_bound = false) {
      const CallTerms terms = call_terms({.messages = {},
                                          .variables = {},
                                          .tools = json(R"([{"function": {"name": "f"}}])"),
                                          .is_bound = is_bound},
                                         family_template(family), tokenizer);
      return terms.form == nullptr ? "none" : std::string(terms.form->begin);
    };
    CHECK(begin("qwen35", with({})) == "<tool_call>");
    CHECK(begin("lfm2", with({"<tool_call>"})) == "<|tool_call_start|>");
    CHECK(begin("chatml", with({"<tool_call>"})) == "<tool_call>");
    CHECK(begin("chatml", with({"<|tool_call>"})) == "<|tool_call>");
    CHECK(begin("chatml", with({})) == "none");
    CHECK(begin("chatml", with({}), true).empty());
    const Tokenizer harmony = with({"<|channel|>", "<|message|>", "<|call|>"});
    CHECK(begin("harmony", harmony) == "to=");
    CHECK(begin("harmony", with({})) == "none");  // its headers are not read either
    CHECK(error_text([&] { begin("harmony", harmony, true); }).starts_with("tool_choice: "));
    const ChatPrompt none{.messages = {}, .variables = {}};
    CHECK(call_terms(none, family_template("qwen35"), with({})).form == nullptr);
  }

  TEST_CASE("the arguments of strict tools are bound in the model's own form, other text is free") {
    const Json tools = json(R"([{"function": {"name": "f", "strict": true, "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
        "unit": {"$ref": "#/$defs/unit"}}, "required": ["city", "unit"],
        "additionalProperties": false, "$defs": {"unit": {"enum": ["C", "F"]}}}}},
        {"function": {"name": "g", "parameters": {"properties": {"x": {"type": "null"}}}}}])");
    const Tokenizer tokenizer = with({});
    ConstraintCache rules(tokenizer, {TokenId{0}}, static_cast<std::int32_t>(tokenizer.size()));
    const auto bound = [&](const char* call, const Json& of) {
      Request request;
      const CallTerms terms = {.form = call_form_in(call, "f"), .tools = to_text(of)};
      REQUIRE(terms.form != nullptr);
      const std::string unbound = bind_calls(request, terms, &rules);
      CHECK(unbound.empty());
      return request;
    };
    struct Case {
      const char *right, *wrong, *other;
    };
    for (const auto& [right, wrong, other] : std::initializer_list<Case>{
             {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Rome\", \"days\": 2, "
              "\"unit\": \"C\"}}\n</tool_call>",
              "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": 1",
              "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"y\": 1}}\n</tool_call>"},
             {"<tool_call>\n<function=f>\n<parameter=city>\nRome\n</"
              "parameter>\n<parameter=days>\n2\n"
              "</parameter>\n<parameter=unit>\nC\n</parameter>\n</function>\n</tool_call>",
              "<tool_call>\n<function=f>\n<parameter=city>\nRome\n</"
              "parameter>\n<parameter=unit>\nK",
              "<tool_call>\n<function=g>\n<parameter=y>\n1\n</parameter>\n</function>\n</"
              "tool_call>"},
             {"<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days"
              "</arg_key>\n<arg_value>2</arg_value>\n<arg_key>unit</arg_key>\n<arg_value>C"
              "</arg_value>\n</tool_call>",
              "<tool_call>f\n<arg_key>days</arg_key>",
              "<tool_call>g\n<arg_key>y</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"},
             {"<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"city\": \"Rome\", \"days\": "
              "2, "
              "\"unit\": \"C\"}}]<|tool_call_end|>",
              "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"days\"",
              "<|tool_call_start|>[{\"name\": \"g\", \"arguments\": {\"y\": 1}}]<|tool_call_end|>"},
             {"<|tool_call>call:f{\"city\": \"Rome\", \"days\": 2, \"unit\": \"C\"}<tool_call|>",
              "<|tool_call>call:f{\"city\": \"Rome\", \"days\": 2.5",
              "<|tool_call>call:g{\"y\": 1}<tool_call|>"},
             {"[TOOL_CALLS]f[ARGS]{\"city\": \"Rome\", \"days\": 2, \"unit\": \"C\"}",
              "[TOOL_CALLS]h", "[TOOL_CALLS]g[ARGS]{\"y\": 1}"}}) {
      CAPTURE(right);
      const Request request = bound(right, tools);
      const auto allows = [&](const std::string& text) {
        GrammarMatcher matcher(*request.rule.get());
        return matcher.accept_bytes(text) ? 1 + matcher.is_complete() : 0;
      };
      CHECK(allows(right) == 2);
      CHECK(allows("I look, and < no call: ") == 2);
      CHECK(allows(std::string("x ") + right + other + " y") == 2);
      CHECK(allows(wrong) == 0);
      CHECK(allows(std::string(right).substr(0, std::string(right).find("Rome"))) == 1);
      const std::vector<ToolCall> calls =
          calls_in(right, {.form = call_form_in(right, "f"), .tools = to_text(tools)});
      REQUIRE(calls.size() == 1);
      CHECK(json(calls[0].arguments) == json(R"({"city": "Rome", "days": 2, "unit": "C"})"));
    }

    const auto with_city = [&](const char* schema) {
      Json changed = tools;
      changed[0]["function"]["parameters"]["properties"]["city"] = json(schema);
      return changed;
    };
    const char* tagged = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
    const auto refusal = [&](const Json& of) { return error_text([&] { bound(tagged, of); }); };
    for (const auto& [schema, keyword] : std::initializer_list<std::pair<const char*, const char*>>{
             {R"({"type": "string", "pattern": "a"})", "'pattern'"},
             {R"({"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]})",
              "'minLength'"},
             {R"({"$ref": "#/definitions/unit"})", "'$ref'"},
             {R"({"$ref": 3})", "'$ref'"},
             {"3", "'3'"}}) {
      CAPTURE(schema);
      CHECK(contains(refusal(with_city(schema)), std::string("tools: city: ") + keyword));
    }
    for (const auto& [keyword, value] :
         std::initializer_list<std::pair<const char*, const char*>>{{"properties", "[1]"},
                                                                    {"required", "3"},
                                                                    {"required", R"(["nosuch"])"},
                                                                    {"anyOf", "[]"}}) {
      Json changed = tools;
      changed[0]["function"]["parameters"][keyword] = json(value);
      CHECK(contains(refusal(changed), "tools: f: '" + std::string(keyword) + "'"));
    }
    const auto allows_city = [&](const char* schema, const std::string& city) {
      const Request request = bound(tagged, with_city(schema));
      GrammarMatcher matcher(*request.rule.get());
      return matcher.accept_bytes("<tool_call>\n<function=f>\n<parameter=city>\n" + city +
                                  "\n</parameter>\n");
    };
    const char* literal = R"({"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}]})";
    CHECK(allows_city(literal, "x"));
    CHECK(allows_city(literal, "null"));
    CHECK_FALSE(allows_city(literal, "y"));
    CHECK(allows_city(R"({"type": ["string", "null"]})", "any"));
    CHECK_FALSE(allows_city(R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", "any"));
    Json open = tools;
    open[0]["function"]["parameters"] = json(R"({"type": "object"})");
    const Request any = bound(tagged, open);
    CHECK(GrammarMatcher(*any.rule.get())
              .accept_bytes(
                  "<tool_call>\n<function=f>\n<parameter=q>\n1\n</parameter>\n</function>"));
    Request request;
    CHECK(bind_calls(request, {.tools = to_text(tools)}, &rules).starts_with("tools: strict"));
    const CallTerms terms = {.form = call_form_in(tagged, "f"), .tools = to_text(tools)};
    request.stop = {"x"};
    CHECK(bind_calls(request, terms, &rules).starts_with("tools: strict"));
    CHECK(request.rule.get() == nullptr);
  }
}

}  // namespace tools_test
