#include "app/ui/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <string>

#include "app/ui/process.h"
#include "app/ui/text.h"

namespace hyb::app {
namespace {

constexpr std::string_view paste_on = "\x1b[?2004h";
constexpr std::string_view paste_off = "\x1b[?2004l";

// A mutable global, because the signal handler that puts it back can be given nothing. Written only
// while no handler is set that reads it.
termios modes_before;

// A global, as the environment's variables that it overrides are.
std::optional<bool> colour_wanted;

void put_modes_back() {
  // Neither call can do more than fail: the terminal may be gone.
  [[maybe_unused]] const ssize_t written =
      ::write(STDOUT_FILENO, paste_off.data(), paste_off.size());
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_before);
}

bool set_raw(Interrupts interrupts) {
  termios raw = modes_before;
  raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INLCR | IGNCR | INPCK | ISTRIP | IXON);
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN);
  if (interrupts == Interrupts::keys) raw.c_lflag &= ~static_cast<tcflag_t>(ISIG);
  raw.c_cflag |= static_cast<tcflag_t>(CS8);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  if (::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) != 0) return false;
  write_stdout(paste_on);
  return true;
}

}  // namespace

bool is_terminal(Stream stream) { return ::isatty(static_cast<int>(stream)) == 1; }

int terminal_columns(Stream stream) {
  winsize size{};
  if (::ioctl(static_cast<int>(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

int text_columns(const Environment& environment) {
  return environment.columns && *environment.columns > 0 ? *environment.columns
                                                         : terminal_columns(Stream::output);
}

int terminal_rows(Stream stream) {
  winsize size{};
  if (::ioctl(static_cast<int>(stream), TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return 24;
  return size.ws_row;
}

std::string fitted_to(Stream stream, std::string text, int columns_before) {
  if (!is_terminal(stream)) return text;
  return wrapped(text, terminal_columns(stream), columns_before);
}

bool input_ready(int timeout_ms) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, timeout_ms) > 0;
}

bool can_move_cursor(Stream stream, const Environment& environment) {
  return is_terminal(stream) && !environment.term.empty() && environment.term != "dumb";
}

bool wants_colour(Stream stream, const Environment& environment) {
  if (colour_wanted) return *colour_wanted;
  if (environment.no_color) return false;
  return environment.force_color || can_move_cursor(stream, environment);
}

void set_colour(std::optional<bool> wanted) { colour_wanted = wanted; }

bool write_output(std::string_view text) {
  return write_stdout(is_terminal(Stream::output) ? sanitized(text) : std::string(text));
}

RawMode::RawMode(Interrupts interrupts) : interrupts_(interrupts) {
  if (::tcgetattr(STDIN_FILENO, &modes_before) != 0) return;
  set_last_words(put_modes_back);
  is_active_ = set_raw(interrupts_);
  if (!is_active_) set_last_words(nullptr);
}

RawMode::~RawMode() {
  if (!is_active_) return;
  put_modes_back();
  set_last_words(nullptr);
}

void RawMode::renew() {
  if (is_active_) set_raw(interrupts_);
}

void RawMode::leave_for(const std::function<void()>& action) {
  if (is_active_) put_modes_back();
  try {
    action();
  } catch (...) {
    renew();
    throw;
  }
  renew();
}

void RawMode::suspend() {
  if (is_active_) leave_for([] { ::raise(SIGTSTP); });
}

}  // namespace hyb::app
