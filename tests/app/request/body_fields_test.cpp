#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <utility>

#include "app/request/body_fields.h"
#include "core/base/error.h"
#include "tests/support/error_text.h"

namespace body_fields_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

std::string refusal(const std::string& member) {
  return error_text([&] { check_fields(parse_json("{" + member + "}", "body")); });
}

}  // namespace

TEST_SUITE("app/batch/check_fields") {
  TEST_CASE("a field that would be dropped is refused by its name") {
    const std::pair<const char*, const char*> fields[] = {
        // vLLM
        {"bad_words", R"(["42"])"},
        {"prompt_logprobs", "0"},
        {"use_beam_search", "true"},
        {"length_penalty", "0.5"},
        {"include_stop_str_in_output", "true"},
        {"skip_special_tokens", "false"},
        {"truncate_prompt_tokens", "10"},
        {"return_token_ids", "true"},
        {"logits_processors", R"(["x"])"},
        {"chat_template", R"("{{ messages }}")"},
        // SGLang
        {"regex", R"("a+")"},
        {"ebnf", R"("root ::= [a]")"},
        {"lora_path", R"("x")"},
        {"separate_reasoning", "false"},
        // llama.cpp
        {"repeat_penalty", "1.1"},
        {"typical_p", "0.9"},
        {"mirostat", "2"},
        {"dry_multiplier", "0.8"},
        {"xtc_probability", "0.5"},
        {"samplers", R"(["top_k"])"},
        {"n_probs", "3"},
        {"reasoning_format", R"("none")"},
        // OpenAI
        {"add_special_tokens", "false"},
        {"functions", R"([{"name":"f"}])"},
        {"function_call", R"({"name":"f"})"},
        {"echo", "true"},
        {"best_of", "2"},
        {"suffix", R"("end")"},
        {"modalities", R"(["text","audio"])"},
        {"audio", R"({"voice":"x"})"},
        {"web_search_options", "{}"},
        {"verbosity", R"("low")"},
        // no tool's
        {"zeta", "0"},
        {"", "1"},
    };
    for (const auto& [name, value] : fields) {
      CAPTURE(name);
      const std::string quoted = "\"" + std::string(name) + "\":";
      CHECK(refusal(quoted + value).starts_with(std::string(name) + ": "));
      CHECK(refusal(quoted + "null").empty());
    }
    CHECK(refusal(R"("temprature":0)").ends_with(", or say temperature"));
    CHECK(contains(refusal(R"("tools":[{}],"parallel_tool_calls":false)"), "parallel_tool_calls"));
    CHECK(contains(refusal(R"("n":2,"best_of":3)"), "best_of"));
    CHECK(refusal(R"("echo":true)") == "echo: only false is obeyed, got true");
  }

  TEST_CASE("values that ask for nothing, and fields that change no answer, pass") {
    for (const char* member : {R"("user":"x")",
                               R"("metadata":{"a":"b"})",
                               R"("store":true)",
                               R"("stream":true)",
                               R"("service_tier":"flex")",
                               R"("stream_options":{"include_usage":true})",
                               R"("n":1)",
                               R"("logit_bias":{})",
                               R"("presence_penalty":0)",
                               R"("response_format":{"type":"text"})",
                               R"("tool_choice":"none")",
                               R"("best_of":1)",
                               R"("echo":false)",
                               R"("suffix":"")",
                               R"("min_tokens":5)",
                               R"("allowed_token_ids":[5])",
                               R"("response_format":{"type":"json_object"})",
                               R"("guided_choice":["yes"])",
                               R"("structured_outputs":{"json":{}})",
                               R"("grammar":"root ::= [a]")",
                               R"("min_tokens":0)",
                               R"("bad_words":[])",
                               R"("length_penalty":1.0)",
                               R"("skip_special_tokens":true)",
                               R"("parallel_tool_calls":true)",
                               R"("typical_p":1)",
                               R"("cache_prompt":true)",
                               R"("safety_identifier":"x")",
                               R"("prompt_cache_key":"x")",
                               R"("verbosity":"medium")",
                               R"("modalities":["text"])",
                               R"("mirostat":0)",
                               R"("n":2,"best_of":2)",
                               R"("prompt":"x","add_special_tokens":true)",
                               R"("messages":[],"add_special_tokens":false)",
                               R"("spaces_between_special_tokens":false)",
                               R"("parallel_tool_calls":false)",
                               R"("guided_choice":[])",
                               R"("vllm_xargs":{})",
                               R"("response_format":{"type":"text","json_schema":null})",
                               R"("detokenize":true)",
                               R"("repeat_last_n":64)",
                               R"("timeout":600)"}) {
      CAPTURE(member);
      CHECK(refusal(member).empty());
    }
  }
}

}  // namespace body_fields_test
