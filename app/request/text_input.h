#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "app/model/model_source.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hyb::app {

/// Source of a command's text: the word after MODEL, -p or --prompt-file, and stdin.
struct TextInput {
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::string first_word, second_word;  ///< [MODEL] [PROMPT], or with -m [PROMPT]
  bool no_stdin = false;
};

/// Adds -m/--model, [MODEL] [PROMPT], -p/--prompt, --prompt-file and --no-stdin. When parsing is
/// done, `model` and `input.text` hold what the words said. Both outlive `cli`.
void add_text_input(CLI::App& cli, TextInput& input, std::string& model);

/// True if a word that may be a model is a prompt: it is "-", or it has a space and is neither a
/// path nor an existing file.
bool is_prompt(const std::string& word);

/// Begins the message about a missing text: the only word may have been meant as one.
std::string taken_word_text(const TextInput& input);

/// The text: of stdin and of the prompt, with an empty line between them where there are both; "-"
/// as a prompt or a file is stdin alone. One line on stderr says so. stdin is not read where it is
/// a terminal or --no-stdin is given. Waiting more than a second for it is reported on stderr.
/// Throws Error(usage) when there is nothing to read, so that it never waits at a terminal, and
/// Error(model) for a file that can't be read, or a text over 1 GiB.
std::string read_text(const TextInput& input);

/// ModelSource::find(). Where the only word was taken for the model, the error says how a text is
/// given.
ModelSource find_model(const TextInput& input, const std::string& model,
                       const std::string& chat_template = "");

/// Adds --system and --system-file, of which one at most may be given; returns the first. `system`
/// outlives `cli`. Throws Error(model) while parsing where the file can't be read.
CLI::Option* add_system_option(CLI::App& cli, std::string& system, const std::string& help);

/// Limit on a text or a conversation.
inline constexpr std::size_t input_bytes_max = std::size_t{1} << 30;

/// The text of a file, a named pipe or stdin ("-"; up to input_bytes_max). Throws Error(model)
/// where the others have more than `bytes_max`.
std::string read_text_of(const std::string& file, std::size_t bytes_max);

}  // namespace hyb::app
