#include "app/text_input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb::app {

void add_text_input(CLI::App& cli, TextInput& input) {
  CLI::Option* text = cli.add_option("-p,--prompt", input.text, "the text");
  cli.add_option("--prompt-file", input.file, "a file that holds the text; else stdin is read")
      ->excludes(text);
}

std::string read_text(const TextInput& input) {
  constexpr std::size_t bytes_max = std::size_t{1} << 30;
  if (input.text) return *input.text;
  if (input.file) return read_whole_file(*input.file, bytes_max);
  if (is_terminal(Stream::input)) {
    throw Error(ErrorKind::usage,
                "no text: give it with -p TEXT, with --prompt-file FILE, or through a pipe");
  }
  return read_stdin();
}

std::string read_stdin() {
  std::string text;
  std::array<char, 65536> piece;
  for (;;) {
    const ssize_t count = read(STDIN_FILENO, piece.data(), piece.size());
    if (count == 0) return text;
    if (count > 0) {
      text.append(piece.data(), static_cast<std::size_t>(count));
    } else if (errno != EINTR || stop_signal() != 0) {
      throw Error(ErrorKind::runtime, std::string("stdin can't be read: ") + std::strerror(errno));
    }
  }
}

}  // namespace hyb::app
