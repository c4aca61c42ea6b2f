#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/io/model_folder.h"

namespace hyb::app {

/// Everything hyb reads from the environment; the only place that calls getenv.
struct Environment {
  HubEnvironment hub;
  bool no_color = false;     ///< NO_COLOR is set and not empty
  bool force_color = false;  ///< CLICOLOR_FORCE or FORCE_COLOR is set, not empty and not 0
  std::string term;          ///< TERM
  bool utf8 = false;         ///< the locale's encoding (LC_ALL, LC_CTYPE, LANG) is UTF-8
  /// $XDG_STATE_HOME/hyb or ~/.local/state/hyb: history. None without a home.
  std::optional<std::filesystem::path> state_folder;
  /// $XDG_DATA_HOME/hyb or ~/.local/share/hyb: saved chats. None without a home.
  std::optional<std::filesystem::path> data_folder;
};

Environment read_environment();

}  // namespace hyb::app
