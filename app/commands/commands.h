#pragma once

#include <functional>
#include <span>

namespace CLI {
class App;
}

namespace hyb::app {

/// Runs a command once its options are parsed; returns the exit code.
using Action = std::function<int()>;

/// One command: a row of the dispatcher's table, one file in commands/.
struct Command {
  const char* name;
  const char* about;
  /// Declares options on `cli` and returns what to do with them.
  Action (*describe)(CLI::App& cli);
  const char* group = "Commands";  ///< its heading in the help
};

extern const Command batch_command;
extern const Command bench_command;
extern const Command chat_command;
extern const Command completion_command;
extern const Command doctor_command;
extern const Command eval_command;
extern const Command fit_command;
extern const Command inspect_command;
extern const Command list_command;
extern const Command manual_command;
extern const Command quantize_command;
extern const Command render_command;
extern const Command replay_command;
extern const Command run_command;
extern const Command sessions_command;
extern const Command tokenize_command;
extern const Command verify_command;

/// All commands, sorted by name.
std::span<const Command* const> commands();

}  // namespace hyb::app
