#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "core/io/model_folder.h"
#include "kernels/device.h"

namespace hyb::app {

/// Everything hyb reads from the environment; the only place that calls getenv.
struct Environment {
  HubEnvironment hub;
  bool no_color = false;     ///< NO_COLOR is set and not empty
  bool force_color = false;  ///< CLICOLOR_FORCE or FORCE_COLOR is set, not empty and not 0
  std::string term;          ///< TERM
  bool hides_cards = false;  ///< CUDA_VISIBLE_DEVICES is set and names no card
  bool utf8 = false;         ///< the locale's encoding (LC_ALL, LC_CTYPE, LANG) is UTF-8
  /// $XDG_STATE_HOME/hyb or ~/.local/state/hyb: history. None without a home.
  std::optional<std::filesystem::path> state_folder;
  /// $XDG_DATA_HOME/hyb or ~/.local/share/hyb: saved chats. None without a home.
  std::optional<std::filesystem::path> data_folder;
};

Environment read_environment();

/// "model name" of /proc/cpuinfo; "unknown CPU" where it does not say.
std::string cpu_name();

/// A line of /proc/meminfo that is given in kB, in bytes: "MemTotal", "MemAvailable", ... None
/// where there is no such line.
std::optional<std::size_t> meminfo_bytes(const std::string& line);

/// The number a file holds; none when it holds a word ("max") or can't be read.
std::optional<std::size_t> number_in(const std::string& path);

/// The machine's memory, or the control group's where that is less. Throws Error(runtime) where
/// /proc/meminfo does not say.
std::size_t machine_bytes();

/// What could be allocated now, by the same two.
std::size_t available_bytes();

/// "avx512", "avx2", "plain".
const char* name_of(kernels::Isa isa);

}  // namespace hyb::app
