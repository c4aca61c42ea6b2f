#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace hyb::app {

/// Where a command's text comes from: -p, --prompt-file, or stdin when it is no terminal.
struct TextInput {
  std::optional<std::string> text;
  std::optional<std::string> file;
};

/// Adds -p/--prompt and --prompt-file, of which one at most may be given.
void add_text_input(CLI::App& cli, TextInput& input);

/// The text. stdin is read only when neither option is given: in a shell's read loop it belongs to
/// the loop. Throws Error(usage) when there is nothing to read, so that nobody waits at a terminal,
/// and Error(model) for a file that can't be read or is over 1 GiB.
std::string read_text(const TextInput& input);

/// All of stdin. Throws Error(runtime) when reading fails.
std::string read_stdin();

}  // namespace hyb::app
