#pragma once

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
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

/// A folder with an input `in`; the output is `out`.
struct BatchJob {
  explicit BatchJob(const std::string& input) { folder.write("in", input); }

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

inline std::string many_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += R"({"custom_id":"r-)" + std::to_string(i) + R"(","body":{"messages":[{"role":"user",)" +
            R"("content":"Question )" + std::to_string(i) + R"("}],"max_tokens":)" +
            std::to_string(4 + i % 20) + "}}\n";
  }
  return text;
}

}  // namespace hyb::testing
