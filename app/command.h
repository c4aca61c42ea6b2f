#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace hyb::app {

/// What a command does once its options are parsed; returns the exit code.
using Action = std::function<int()>;

/// One command: a row of the dispatcher's table, one file in commands/.
struct Command {
  const char* name;
  const char* about;
  /// Declares options on `cli` and returns what to do with them.
  Action (*describe)(CLI::App& cli);
};

}  // namespace hyb::app
