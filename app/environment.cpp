#include "app/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace hyb::app {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

bool is_on(const char* name) {
  const auto value = variable(name);
  return value && *value != "0";
}

bool names_utf8(std::string locale) {
  std::transform(locale.begin(), locale.end(), locale.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
}

/// hyb's own below the folder that the variable names, or below `usual` in the home.
std::optional<std::filesystem::path> folder_of(const char* name, const char* usual) {
  if (const auto folder = variable(name)) return std::filesystem::path(*folder) / "hyb";
  if (const auto home = variable("HOME")) return std::filesystem::path(*home) / usual / "hyb";
  return std::nullopt;
}

}  // namespace

Environment read_environment() {
  Environment environment;
  environment.hub = {.hf_hub_cache = variable("HF_HUB_CACHE"),
                     .hf_home = variable("HF_HOME"),
                     .xdg_cache_home = variable("XDG_CACHE_HOME"),
                     .home = variable("HOME")};
  environment.no_color = variable("NO_COLOR").has_value();
  environment.force_color = is_on("CLICOLOR_FORCE") || is_on("FORCE_COLOR");
  environment.term = variable("TERM").value_or("");
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const auto locale = variable(name)) {
      environment.utf8 = names_utf8(*locale);
      break;
    }
  }
  environment.state_folder = folder_of("XDG_STATE_HOME", ".local/state");
  environment.data_folder = folder_of("XDG_DATA_HOME", ".local/share");
  return environment;
}

}  // namespace hyb::app
