#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/support/files.h"

namespace hyb::testing {

/// One run of a program, hyb unless another is named.
struct Tool {
  std::vector<std::string> arguments;
  std::string input = {};                               ///< all of stdin
  std::map<std::string, std::string> environment = {};  ///< over our own
  std::string program = HYB_BINARY;
  std::chrono::seconds time_max{300};
};

struct ToolResult {
  int exit_code = -1;  ///< 128 + signal when one ended it; -1: took too long and was killed
  std::string out = {};
  std::string err = {};
};

class ToolPipe {
 public:
  ToolPipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  }
  ~ToolPipe() {
    close(0);
    close(1);
  }
  ToolPipe(const ToolPipe&) = delete;
  ToolPipe& operator=(const ToolPipe&) = delete;

  int end(std::size_t side) const { return ends_[side]; }
  void close(std::size_t side) {
    if (ends_[side] >= 0) ::close(ends_[side]);
    ends_[side] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

[[noreturn]] inline void become_tool(const Tool& tool, const std::array<int, 3>& streams) {
  for (int i = 0; i < 3; ++i) ::dup2(streams[static_cast<std::size_t>(i)], i);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGHUP}) ::signal(signal, SIG_DFL);
  for (const char* name :
       {"HF_HOME", "HF_HUB_CACHE", "NO_COLOR", "CLICOLOR_FORCE", "FORCE_COLOR"}) {
    ::unsetenv(name);
  }
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // --device auto is the CPU
  for (const auto& [name, value] : tool.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words = tool.arguments;
  words.insert(words.begin(), tool.program);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

/// Feeds stdin and collects the rest until all ends are closed. False: out of time.
inline bool converse(const Tool& tool, ToolPipe& in, ToolPipe& out, ToolPipe& err,
                     ToolResult& result) {
  const auto deadline = std::chrono::steady_clock::now() + tool.time_max;
  std::string_view input = tool.input;
  ::fcntl(in.end(1), F_SETFL, O_NONBLOCK);
  while (out.end(0) >= 0 || err.end(0) >= 0) {
    if (input.empty()) in.close(1);
    std::array<pollfd, 3> ends{pollfd{in.end(1), POLLOUT, 0}, pollfd{out.end(0), POLLIN, 0},
                               pollfd{err.end(0), POLLIN, 0}};
    ::poll(ends.data(), ends.size(), 100);
    if (std::chrono::steady_clock::now() > deadline) return false;
    if (ends[0].revents != 0) {
      const ssize_t written = ::write(in.end(1), input.data(), input.size());
      if (written > 0) input.remove_prefix(static_cast<std::size_t>(written));
      if (written < 0 && errno == EPIPE) input = {};
    }
    const auto collect = [](const pollfd& end, ToolPipe& pipe, std::string& text) {
      if (end.fd < 0 || end.revents == 0) return;
      std::array<char, 65536> bytes;
      const ssize_t read = ::read(end.fd, bytes.data(), bytes.size());
      if (read > 0) text.append(bytes.data(), static_cast<std::size_t>(read));
      if (read == 0) pipe.close(0);
    };
    collect(ends[1], out, result.out);
    collect(ends[2], err, result.err);
  }
  return true;
}

inline ToolResult run_tool(Tool tool) {
  static const TemporaryFolder state;  // nothing is written to the home of the user
  tool.environment.try_emplace("XDG_STATE_HOME", state.path().string());
  tool.environment.try_emplace("XDG_CONFIG_HOME", state.path().string());
  ::signal(SIGPIPE, SIG_IGN);  // a program that does not read its stdin is no reason to die
  ToolPipe in, out, err;
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become_tool(tool, {in.end(0), out.end(1), err.end(1)});
  in.close(0);
  out.close(1);
  err.close(1);
  ToolResult result;
  const bool in_time = converse(tool, in, out, err, result);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!in_time) return result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

/// `hyb COMMAND ARGUMENTS...`
inline ToolResult run_command(const char* command, std::vector<std::string> arguments,
                              std::string input = {}) {
  arguments.insert(arguments.begin(), command);
  return run_tool({.arguments = std::move(arguments), .input = std::move(input)});
}

/// A shell command line in which $HYB is the binary, for pipes and redirections.
inline ToolResult run_shell(const std::string& line, std::string input = {}) {
  return run_tool({.arguments = {"-c", line},
                   .input = std::move(input),
                   .environment = {{"HYB", HYB_BINARY}},
                   .program = "/bin/sh"});
}

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
