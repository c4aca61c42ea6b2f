#include "app/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include "core/base/error.h"

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
  const char* const cards = std::getenv("CUDA_VISIBLE_DEVICES");
  environment.hides_cards = cards != nullptr && (*cards == '\0' || *cards == '-');
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

namespace {

std::size_t need_meminfo(const std::string& line) {
  if (const auto bytes = meminfo_bytes(line)) return *bytes;
  throw Error(ErrorKind::runtime, "/proc/meminfo has no " + line + "; state --memory as a size");
}

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "unknown CPU";
}

std::optional<std::size_t> meminfo_bytes(const std::string& line) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::size_t kib = 0;
  while (file >> name >> kib) {
    if (name == line + ':') return kib << 10;
    file.ignore(64, '\n');
  }
  return std::nullopt;
}

std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::size_t machine_bytes() {
  const std::size_t total = need_meminfo("MemTotal");
  return std::min(total, number_in("/sys/fs/cgroup/memory.max").value_or(total));
}

std::size_t available_bytes() {
  const std::size_t available = need_meminfo("MemAvailable");
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (!limit || !used) return available;
  return std::min(available, *limit - std::min(*limit, *used));
}

const char* name_of(kernels::Isa isa) {
  switch (isa) {
    case kernels::Isa::avx512:
      return "avx512";
    case kernels::Isa::avx2:
      return "avx2";
    case kernels::Isa::plain:
      break;
  }
  return "plain";
}

}  // namespace hyb::app
