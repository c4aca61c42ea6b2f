#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/app/run_tool.h"
#include "tests/support/temporary_folder.h"

namespace hyb::testing {

struct TmuxOptions {
  std::string command;  ///< for a shell
  std::map<std::string, std::string> environment = {};
  int columns = 80;
  int rows = 24;
};

/// A person's terminal: a tmux server of its own with one window, in which a command line runs.
/// After it has ended the window shows "exit code N".
class Tmux {
 public:
  explicit Tmux(const TmuxOptions& options) {
    std::string line = "env -u NO_COLOR -u CLICOLOR_FORCE -u FORCE_COLOR";
    for (const auto& [name, value] : options.environment) line += " " + name + "='" + value + "'";
    // The trap keeps the shell alive when Ctrl-C reaches the whole group of processes.
    line += " sh -c 'trap : INT; " + options.command + "; echo \"exit code $?\"; cat >/dev/null'";
    tmux({"-f", "/dev/null", "new-session", "-d", "-x", std::to_string(options.columns), "-y",
          std::to_string(options.rows), line});
  }
  ~Tmux() { run_tool(tool({"kill-server"})); }
  Tmux(const Tmux&) = delete;
  Tmux& operator=(const Tmux&) = delete;

  void type(const std::string& text) { tmux({"send-keys", "-l", "--", text}); }
  void press(const std::string& key) { tmux({"send-keys", key}); }  ///< "Enter", "C-c", "Up", ...
  void enter(const std::string& text) {
    type(text);
    press("Enter");
  }

  /// Pastes as a terminal with bracketed paste does.
  void paste(const std::string& text) {
    Tool load = tool({"load-buffer", "-"});
    load.input = text;
    run_tool(load);
    tmux({"paste-buffer", "-p"});
  }

  void resize(int columns, int rows) {
    tmux({"resize-window", "-x", std::to_string(columns), "-y", std::to_string(rows)});
  }

  /// What the window shows, without space at line ends.
  std::string screen() { return tmux({"capture-pane", "-p"}); }

  /// Waits until the window shows `text`; false when it does not within 30 seconds.
  bool shows(const std::string& text) { return waits_for(text, true); }

  /// Waits until the window does not show it any more.
  bool hides(const std::string& text) { return waits_for(text, false); }

 private:
  bool waits_for(const std::string& text, bool is_there) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      if ((screen().find(text) != std::string::npos) == is_there) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    return false;
  }

  Tool tool(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-S", (folder_.path() / "tmux").string()});
    return {.arguments = std::move(arguments), .program = "tmux"};
  }

  std::string tmux(std::vector<std::string> arguments) {
    const ToolResult result = run_tool(tool(std::move(arguments)));
    if (result.exit_code != 0) throw std::runtime_error("tmux: " + result.err);
    return result.out;
  }

  TemporaryFolder folder_;  // holds the server's socket
};

}  // namespace hyb::testing
