#pragma once

#include <span>

#include "app/command.h"

namespace hyb::app {

extern const Command batch_command;
extern const Command bench_command;
extern const Command chat_command;
extern const Command doctor_command;
extern const Command fit_command;
extern const Command inspect_command;
extern const Command render_command;
extern const Command replay_command;
extern const Command run_command;
extern const Command sessions_command;
extern const Command tokenize_command;
extern const Command verify_command;

/// All commands, sorted by name.
std::span<const Command* const> commands();

/// What --version prints.
const char* version_text();

}  // namespace hyb::app
