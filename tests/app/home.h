#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/temporary_folder.h"

namespace hyb::testing {

/// A home in which chats are kept.
struct Home {
  ToolResult hyb(std::vector<std::string> arguments, const std::string& input = "") const {
    return run_tool({.arguments = std::move(arguments),
                     .input = input,
                     .environment = {{"XDG_DATA_HOME", folder.path().string()}}});
  }

  /// A chat with this model; `more` follows its arguments.
  ToolResult chat(const std::string& model, const std::string& input,
                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"chat", model, "-n", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return hyb(std::move(arguments), input);
  }

  /// What a command prints, as JSON.
  Json json(std::vector<std::string> arguments) const {
    const ToolResult result = hyb(std::move(arguments));
    CHECK(result.exit_code == 0);
    return parse_json(result.out, "stdout");
  }

  TemporaryFolder folder;
};

}  // namespace hyb::testing
