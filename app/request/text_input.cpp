#include "app/request/text_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "app/options/options.h"
#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

constexpr std::chrono::milliseconds stdin_patience(1000);

std::string read_input(const char* waiting) {
  const StopAtOnce nothing_to_lose;
  return without_mark(
      read_stream(STDIN_FILENO, "stdin",
                  {.bytes_max = input_bytes_max, .patience = stdin_patience, .waiting = waiting}),
      "stdin");
}

std::string read_pipe(const std::string& name, std::size_t bytes_max) {
  const StopAtOnce nothing_to_lose;
  const Descriptor pipe(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!pipe.is_open()) {
    throw Error(ErrorKind::model, name + ": can't be opened: " + std::strerror(errno));
  }
  const std::string waiting = fmt::format("waiting for {}, until it ends", name);
  return without_mark(
      read_stream(pipe.number(), name.c_str(),
                  {.bytes_max = bytes_max, .patience = stdin_patience, .waiting = waiting.c_str()}),
      name);
}

/// True if stdin is a file that another program, such as a shell's loop, has read a part of.
bool is_shared_file() {
  std::error_code ignored;
  return std::filesystem::is_regular_file("/proc/self/fd/0", ignored) &&
         ::lseek(STDIN_FILENO, 0, SEEK_CUR) > 0;
}

constexpr std::string_view stdin_word = "-";

/// The text, an empty line, the prompt: a question is obeyed best where it ends the message.
std::string with_text(const std::string& prompt, std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text + "\n\n" + prompt;
}

/// True if a word is written like a path, even if no such file exists.
bool is_like_path(std::string_view word) {
  const auto begins = [&](std::string_view start) { return word.starts_with(start); };
  constexpr std::string_view starts[] = {"/", "./", "../", "~"};
  return word.ends_with(".gguf") || word.ends_with(".safetensors") ||
         std::any_of(std::begin(starts), std::end(starts), begins);
}

/// [MODEL] [PROMPT], or with -m [PROMPT].
void take_words(CLI::App& cli, TextInput& input, std::string& model) {
  if (cli.remaining_size() > 0) return;  // unknown options, whose values look like words
  const bool has_flag = cli.count("--model") > 0;
  const bool has_first = cli.count("model") > 0, has_second = cli.count("prompt") > 0;
  if (has_flag && has_second) {
    throw Error(ErrorKind::usage, fmt::format("the model is given twice: as {} and with -m",
                                              quote_name(input.first_word)));
  }
  const CLI::Option* const decode = cli.get_option_no_throw("--decode");
  const bool are_ids = decode != nullptr && decode->count() > 0 &&
                       input.first_word.find_first_not_of("0123456789,") == std::string::npos;
  const bool first_is_prompt =
      has_first && !has_second && (has_flag || are_ids || is_prompt(input.first_word));
  if (has_first && !first_is_prompt) model = input.first_word;
  if (first_is_prompt) cli.get_option("model")->clear();  // no model is given
  if (!first_is_prompt && !has_second) return;
  const std::string& prompt = first_is_prompt ? input.first_word : input.second_word;
  for (const char* const option : {"--prompt", "--prompt-file", "--messages"}) {
    if (cli.get_option_no_throw(option) == nullptr || cli.count(option) == 0) continue;
    throw Error(ErrorKind::usage, fmt::format("the prompt is given twice: as {} and with {}",
                                              quote_name(prompt), option));
  }
  input.text = prompt;
}

}  // namespace

bool is_prompt(const std::string& word) {
  std::error_code ignored;
  return word == stdin_word || (word.find_first_of(white_space) != std::string::npos &&
                                !is_like_path(word) && !std::filesystem::exists(word, ignored));
}

std::string taken_word_text(const TextInput& input) {
  const bool is_taken = !input.text && !input.file && !input.first_word.empty();
  return is_taken ? quote_name(input.first_word) + " is taken for the model; " : "";
}

void add_text_input(CLI::App& cli, TextInput& input, std::string& model) {
  add_model_flag(cli, model);
  cli.add_option("model", input.first_word, fmt::format("{} (default: {})", model_help, model))
      ->type_name("MODEL");
  cli.add_option("prompt", input.second_word, "the prompt (-: stdin)");
  CLI::Option* text =
      cli.add_option("-p,--prompt", input.text, "the prompt; the same as the word PROMPT");
  cli.add_option("-f,--prompt-file,--file", input.file, "file that holds the prompt (-: stdin)")
      ->type_name("FILE")
      ->excludes(text);
  cli.add_flag("--no-stdin", input.no_stdin,
               "leave stdin alone. Without it, what a pipe or a file on stdin holds is the prompt, "
               "or comes before the prompt, with an empty line between them");
  cli.parse_complete_callback([&cli, &input, &model] { take_words(cli, input, model); });
}

std::string read_text(const TextInput& input) {
  std::optional<std::string> prompt = input.text;
  if (input.file && *input.file != stdin_word) prompt = read_text_of(*input.file, input_bytes_max);
  if (prompt == stdin_word) prompt.reset();
  const bool reads_stdin = !input.no_stdin && !is_terminal(Stream::input);
  if (!prompt && !reads_stdin) {
    throw Error(ErrorKind::usage,
                taken_word_text(input) +
                    "no text: give it as the word after MODEL, with -p TEXT, with --prompt-file "
                    "FILE, or through a pipe");
  }
  if (!reads_stdin) return *prompt;
  if (!prompt) {
    return read_input(
        "waiting for the text: it is read from stdin, until that ends; -p TEXT gives it, too");
  }
  const bool is_shared = is_shared_file();
  std::string text = read_input(
      "waiting for stdin to end: what it holds is added to the prompt; --no-stdin leaves it "
      "alone");
  if (text.empty()) return *prompt;
  if (is_shared) {
    log::warning(
        "the rest of stdin is added to the prompt; where stdin belongs to a loop, give --no-stdin");
  } else {
    log::info(fmt::format("stdin ({}) comes before the prompt; in loops, give --no-stdin",
                          counted(std::ssize(text), "byte")));
  }
  return with_text(*prompt, std::move(text));
}

std::string read_text_of(const std::string& file, std::size_t bytes_max) {
  if (file == stdin_word) return read_input("waiting for stdin, until it ends");
  return is_pipe(file) ? read_pipe(file, bytes_max) : read_text_file(file, bytes_max);
}

ModelSource find_model(const TextInput& input, const std::string& model,
                       const std::string& chat_template) {
  try {
    return ModelSource::find(model, read_environment(), chat_template);
  } catch (const Error& error) {
    if (taken_word_text(input).empty()) throw;
    throw Error(
        error.kind(),
        fmt::format("{}; a text is the word after MODEL, or given with -p TEXT", error.what()));
  }
}

CLI::Option* add_system_option(CLI::App& cli, std::string& system, const std::string& help) {
  constexpr std::size_t bytes_max = std::size_t{16} << 20;
  CLI::Option* const option = cli.add_option("--system,--system-prompt", system, help);
  cli.add_option_function<std::string>(
         "--system-file",
         [&system](const std::string& file) { system = read_text_of(file, bytes_max); },
         "file that holds the system prompt (-: stdin)")
      ->type_name("FILE")
      ->excludes(option);
  return option;
}

}  // namespace hyb::app
