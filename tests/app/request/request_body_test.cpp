#include <doctest/doctest.h>

#include "app/request/request_body.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"

namespace request_body_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

Request applied(const std::string& body, Request request = {}) {
  apply_body(parse_json(body, "body"), request);
  return request;
}

}  // namespace

TEST_SUITE("app/request_body") {
  TEST_CASE("fields reach the request, null and absent ones leave it alone") {
    const Request request = applied(
        R"({"max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,
            "seed":18446744073709551615,"stop":["a","b"],"n":3,"logprobs":true,"top_logprobs":4,
            "frequency_penalty":1,
            "presence_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"12":-100},
            "ignore_eos":true,"enable_thinking":true,"thinking":{"type":"enabled"}})");
    CHECK(request.max_tokens == 5);
    CHECK(request.sampling.temperature == 0.5F);
    CHECK(request.sampling.top_p == 0.9F);
    CHECK(request.sampling.top_k == 7);
    CHECK(request.sampling.min_p == 0.1F);
    CHECK(request.sampling.seed == ~std::uint64_t{0});
    CHECK(request.stop == std::vector<std::string>{"a", "b"});
    CHECK(request.choices == 3);
    CHECK(request.sampling.logprobs == 4);
    CHECK(request.sampling.frequency_penalty == 1.0F);
    CHECK(request.sampling.presence_penalty == -1.0F);
    CHECK(request.sampling.repetition_penalty == 1.5F);
    REQUIRE(request.sampling.bias.size() == 1);
    CHECK(request.sampling.bias[0].token == TokenId{12});
    CHECK(request.sampling.bias[0].bias == -100.0F);
    CHECK(request.ignore_eos);

    Request defaults;
    defaults.max_tokens = 9;
    defaults.stop = {"z"};
    defaults.sampling.temperature = 0.25F;
    const Request kept = applied(R"({"max_tokens":null,"stop":null,"temperature":null})", defaults);
    CHECK(kept.max_tokens == 9);
    CHECK(kept.stop == defaults.stop);
    CHECK(kept.sampling.temperature == 0.25F);
  }

  TEST_CASE("other spellings") {
    CHECK(applied(R"({"max_completion_tokens":6})").max_tokens == 6);
    CHECK(applied(R"({"n_predict":6})").max_tokens == 6);
    CHECK(applied(R"({"max_tokens":-1})").max_tokens == -1);
    CHECK(applied(R"({"stop":"x"})").stop == std::vector<std::string>{"x"});
    CHECK(applied(R"({"top_k":-1})").sampling.top_k == -1);  // all, as 0
    CHECK(applied(R"({"logprobs":5})").sampling.logprobs == 5);
    CHECK(applied(R"({"logprobs":true})").sampling.logprobs == 0);
    CHECK(applied(R"({"logprobs":false})").sampling.logprobs == -1);
    CHECK(applied(R"({"logprobs":false,"top_logprobs":0})").sampling.logprobs == -1);
    CHECK(applied(R"({"seed":18446744073709551615})").sampling.seed == ~std::uint64_t{0});
  }

  TEST_CASE("stop_token_ids end an answer beside the model's own, or alone") {
    Request defaults;
    defaults.stop_tokens = {TokenId{2}};
    const Request both = applied(R"({"stop_token_ids":[7,8]})", defaults);
    CHECK(both.stop_tokens == std::vector<TokenId>{TokenId{2}, TokenId{7}, TokenId{8}});
    const Request alone = applied(R"({"stop_token_ids":[7],"ignore_eos":true})", defaults);
    CHECK(alone.stop_tokens == std::vector<TokenId>{TokenId{7}});
    CHECK_FALSE(alone.ignore_eos);
    CHECK(applied(R"({"stop_token_ids":[],"ignore_eos":true})", defaults).ignore_eos);
  }

  TEST_CASE("a wrong type or a number that does not fit names the field") {
    const std::pair<const char*, const char*> cases[] = {
        {R"({"temperature":"hot"})", "temperature"},
        {R"({"temperature":1e300})", "temperature"},
        {R"({"max_tokens":0})", "max_tokens"},
        {R"({"max_tokens":1.5})", "max_tokens"},
        {R"({"max_tokens":99999999999})", "max_tokens"},
        {R"({"max_completion_tokens":-3})", "max_completion_tokens"},
        {R"({"top_k":18446744073709551615})", "top_k"},
        {R"({"seed":1.5})", "seed"},
        {R"({"seed":-1})", "seed"},
        {R"({"seed":18446744073709551616})", "seed"},
        {R"({"stop":[1]})", "stop"},
        {R"({"stop":{}})", "stop"},
        {R"({"n":"2"})", "n"},
        {R"({"logprobs":21})", "logprobs"},
        {R"({"top_logprobs":3})", "top_logprobs"},
        {R"({"logprobs":true,"top_logprobs":21})", "top_logprobs"},
        {R"({"logit_bias":[1]})", "logit_bias"},
        {R"({"logit_bias":{"x":1}})", "logit_bias"},
        {R"({"logit_bias":{"1":"x"}})", "logit_bias"},
        {R"({"ignore_eos":1})", "ignore_eos"},
        {R"({"min_tokens":"5"})", "min_tokens"},
        {R"({"allowed_token_ids":["x"]})", "allowed_token_ids"},
        {R"({"allowed_token_ids":[]})", "allowed_token_ids"},
        {R"({"tool_choice":"required"})", "tool_choice"},
        {R"({"tools":{}})", "tools"},
        {R"({"tools":["f"]})", "tools"},
        {R"({"documents":[1]})", "documents"},
        {R"({"chat_template_kwargs":[]})", "chat_template_kwargs"},
        {R"({"stop_token_ids":7})", "stop_token_ids"},
        {R"({"stop_token_ids":["x"]})", "stop_token_ids"},
        {R"({"enable_thinking":"no"})", "enable_thinking"},
        {R"({"thinking":{"type":"enabled","budget_tokens":9}})", "thinking"},
        {R"({"thinking":true,"enable_thinking":false})", "thinking"},
        {R"({"zeta":1})", "zeta"},
    };
    for (const auto& [body, field] : cases) {
      CAPTURE(body);
      CHECK(error_text([&] { applied(body); }).starts_with(std::string(field) + ": "));
    }
    CHECK_NOTHROW(applied(R"({"response_format":{"type":"text"},"tool_choice":"auto"})"));
  }

  TEST_CASE("the template gets its variables") {
    const Json body =
        parse_json(R"({"messages":[],"tools":[1],"chat_template_kwargs":{"a":1}})", "body");
    CHECK(template_variables(body) ==
          parse_json(R"({"tools":[1],"chat_template_kwargs":{"a":1}})", "v"));
    // As in vLLM: the prompt is that of other turns, and calls are text.
    const char* const uncalled = R"({"tools":[1],"tool_choice":"none"})";
    CHECK(template_variables(parse_json(uncalled, "body")).contains("tools"));
    const ChatTemplate parsed = ChatTemplate::parse("{{ tools }}", "t");
    const auto tools = [&](const char* text) {
      return chat_prompt(parse_json(text, "body"), Json::array(), {}, parsed).tools;
    };
    CHECK(tools(uncalled).is_null());
    CHECK(tools(R"({"tools":[1],"tool_choice":"auto"})") == Json::array({1}));
  }

  TEST_CASE("what a template never reads is refused, and its own arguments are reported") {
    const auto variables = [](const char* text, const std::string& member, Think think = {}) {
      const ChatTemplate parsed = ChatTemplate::parse(text, "t");
      return chat_prompt(parse_json("{" + member + "}", "body"), Json::array(), think, parsed)
          .variables;
    };
    const auto refusal = [&](const char* text, const std::string& member) {
      return error_text([&] { variables(text, member); });
    };
    const std::pair<const char*, const char*> cases[] = {
        {"tools", R"([{"type":"function"}])"},  {"documents", R"([{"text":"x"}])"},
        {"reasoning_effort", R"("low")"},       {"enable_thinking", "false"},
        {"thinking", R"({"type":"disabled"})"},
    };
    for (const auto& [field, value] : cases) {
      CAPTURE(field);
      const std::string member = "\"" + std::string(field) + "\":" + value;
      CHECK(refusal("{{ messages }}", member).starts_with(std::string(field) + ": "));
      CHECK(
          refusal(("{% macro m() %}{{ " + std::string(field) + " }}{% endmacro %}").c_str(), member)
              .empty());
    }
    CHECK(refusal("plain", R"("tools":[],"tool_choice":"auto")").empty());
    CHECK(refusal("plain", R"("tools":[{}],"tool_choice":"none")").empty());
    // The body's own word counts for more than the flag's.
    constexpr const char* thinks = "{{ enable_thinking }}";
    CHECK(variables(thinks, R"("thinking":{"type":"disabled"})", true) == think_variables(false));
    CHECK(variables(thinks, "", true) == think_variables(true));
    const Json arguments = parse_json(R"({"chat_template_kwargs":{"a":1,"messages":2}})", "body");
    CHECK(unread_arguments(arguments, ChatTemplate::parse("{{ messages }}", "t")) ==
          std::vector<std::string>{
              "chat_template_kwargs: the model's chat template does not read \"a\""});
  }
}

}  // namespace request_body_test
