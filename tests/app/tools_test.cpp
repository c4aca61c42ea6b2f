#include "app/tools.h"

#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

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
}

}  // namespace tools_test
