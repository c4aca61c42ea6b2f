#pragma once

#include <span>
#include <string>

namespace hyb::app {

/// `words` as a line for a POSIX shell.
std::string shell_line(std::span<const std::string> words);

/// The command line of this process without what a rerun must not repeat (--force and
/// --retry-failed).
std::string resume_command();

}  // namespace hyb::app
