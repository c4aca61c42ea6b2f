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
  if (const auto state = variable("XDG_STATE_HOME")) {
    environment.state_folder = std::filesystem::path(*state) / "hyb";
  } else if (const auto home = variable("HOME")) {
    environment.state_folder = std::filesystem::path(*home) / ".local/state/hyb";
  }
  return environment;
}

}  // namespace hyb::app
