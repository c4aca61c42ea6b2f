#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/app/run_tool.h"

namespace hyb::testing {

inline std::string golden(const std::string& name) {
  return std::string(HYB_TESTS_DIR "/golden/") + name;
}

/// Makes a model say these tokens, each once, in this order.
inline std::vector<std::string> script(const std::vector<int>& ids) {
  std::vector<std::string> words = {"--presence-penalty", "100"};
  int bias = 96;
  for (const int id : ids) {
    words.insert(words.end(), {"--logit-bias", std::to_string(id) + "=" + std::to_string(bias)});
    bias -= 12;
  }
  return words;
}

inline ToolResult tool(std::vector<std::string> words, const std::vector<std::string>& more = {},
                       std::string input = {}) {
  words.insert(words.end(), more.begin(), more.end());
  return run_tool({.arguments = std::move(words), .input = std::move(input)});
}

/// The message of `hyb run --json`.
inline Json message_of(std::vector<std::string> words, const std::vector<std::string>& more = {}) {
  words.push_back("--json");
  const ToolResult result = tool(std::move(words), more);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return parse_json(result.out, "stdout")["choices"][0]["message"];
}

/// A thinking model's fixture: A and B as tokens, the end of a thought, the end of an answer.
struct Thinker {
  const char* name;
  int a, b, thought_end, answer_end;
};

inline constexpr Thinker thinkers[] = {{"nemotron-moe", 48, 49, 13, 11},
                                       {"qwen3_5-text", 32, 33, 283, 279}};

inline std::vector<std::string> thought_script(const Thinker& thinker) {
  return script({thinker.a, thinker.thought_end, thinker.b, thinker.answer_end});
}

inline std::vector<int> ids_of(const ToolResult& rendered) {
  REQUIRE(rendered.exit_code == 0);
  return parse_json(rendered.out, "ids").get<std::vector<int>>();
}

}  // namespace hyb::testing
