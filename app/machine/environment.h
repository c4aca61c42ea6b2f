#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/io/model_folder.h"
#include "kernels/device.h"

namespace hyb::app {

/// Everything hyb reads from the environment; the only place that calls getenv.
struct Environment {
  HubEnvironment hub;               ///< where models are
  bool no_color = false;            ///< NO_COLOR is set and not empty
  bool force_color = false;         ///< CLICOLOR_FORCE or FORCE_COLOR is set, not empty and not 0
  std::string term;                 ///< TERM
  std::optional<int> columns = {};  ///< COLUMNS, where that is a number
  std::string editor = {};          ///< VISUAL, else EDITOR
  bool hides_cards = false;         ///< CUDA_VISIBLE_DEVICES is set and names no card
  /// HYB_CUDA_CARVEOUT and HYB_CUDA_EARLY_STARTS, for kernels::launch_tuning_of.
  std::optional<std::string> cuda_carveout = {}, cuda_early_starts = {};
  /// Absolute paths where Python may be installed.
  std::vector<std::filesystem::path> python_prefixes = {};
  bool utf8 = false;  ///< the locale's encoding (LC_ALL, LC_CTYPE, LANG) is UTF-8
  /// $XDG_STATE_HOME/hyb or ~/.local/state/hyb: history. None without a home.
  std::optional<std::filesystem::path> state_folder;
  /// $XDG_DATA_HOME/hyb or ~/.local/share/hyb: saved chats. None without a home.
  std::optional<std::filesystem::path> data_folder;
  /// HYB_CONFIG, else $XDG_CONFIG_HOME/hyb/config.toml or ~/.config/hyb/config.toml. None without a
  /// home.
  std::optional<std::filesystem::path> config_file = {};
  bool names_config_file = false;  ///< by HYB_CONFIG
};

Environment read_environment();

/// Environment::python_prefixes, of PATH and HOME; /usr/local and /usr are always among them.
std::vector<std::filesystem::path> python_prefixes_of(const std::string& path,
                                                      const std::optional<std::string>& home);

/// Lets queues on cards start kernels, and look for cuBLASLt, as the environment says. Throws
/// Error(usage) where it is unclear.
void prepare_cards(const Environment& environment);

/// "model name" of /proc/cpuinfo; "unknown CPU" where it does not say.
std::string cpu_name();

/// A line of /proc/meminfo that is given in kB, in bytes: "MemTotal", "MemAvailable", ... None
/// where there is no such line.
std::optional<std::size_t> meminfo_bytes(const std::string& line);

/// A limit on the memory of this process besides the machine's.
struct MemoryLimit {
  std::string source;  ///< the file that says so, or "ulimit -v"
  std::size_t bytes = 0;
  std::size_t used = 0;  ///< of it; without page cache, which the kernel frees before it kills

  std::size_t free() const { return bytes - std::min(bytes, used); }
};

/// The limits of the process's control groups (memory.max and memory.high of version 2,
/// memory.limit_in_bytes of version 1) and of its addresses, the one that leaves least first. Swap
/// is not counted. `root` as in control_groups.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/");

/// "; X limits this process to 300.0 MiB, of which 9.1 MiB are in use" where the first limit leaves
/// less than `needed` bytes, else "": for messages about what does not fit.
std::string limit_note(const std::vector<MemoryLimit>& limits, std::size_t needed);

/// The machine's memory, or the least limit where that is less. Throws Error(runtime) where
/// /proc/meminfo does not say.
std::size_t machine_bytes();

/// Returns the bytes that could be allocated now, by the same sources.
std::size_t available_bytes();

/// Returns `available` less what is left to others.
std::size_t without_room(std::size_t available);

/// Returns the bytes of addresses that ulimit -v leaves, without_room(); the largest number where
/// there is no such limit.
std::size_t free_addresses();

/// "avx512", "avx2", "plain".
const char* name_of(kernels::Isa isa);

}  // namespace hyb::app
