#pragma once

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/support/files.h"

namespace hyb::testing {

/// The lines of a batch's output.
inline std::vector<Json> results(const std::filesystem::path& path) {
  std::vector<Json> results;
  std::istringstream lines(content(path));
  for (std::string line; std::getline(lines, line);) results.push_back(parse_json(line, "result"));
  return results;
}

/// custom_id -> what matters of the result; fails on an id that occurs twice.
inline std::map<std::string, std::string> answers(const std::filesystem::path& path) {
  std::map<std::string, std::string> answers;
  for (const Json& result : results(path)) {
    const Json& response = result["response"];
    const std::string answer =
        response.is_null() ? to_text(result["error"]) : to_text(response["body"]["choices"]);
    CHECK(answers.emplace(result["custom_id"], answer).second);
  }
  return answers;
}

}  // namespace hyb::testing
