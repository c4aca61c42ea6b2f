#include "app/machine/environment.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "core/base/control_groups.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "kernels/launch_tuning.h"
#include "kernels/linear/library_products.h"

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

bool names_utf8(const std::string& name) {
  const std::string locale = in_small_letters(name);
  return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
}

/// hyb's own below the folder that the variable names, or below `usual` in the home.
std::optional<std::filesystem::path> folder_of(const char* name, const char* usual) {
  if (const auto folder = variable(name)) return std::filesystem::path(*folder) / "hyb";
  if (const auto home = variable("HOME")) return std::filesystem::path(*home) / usual / "hyb";
  return std::nullopt;
}

}  // namespace

std::vector<std::filesystem::path> python_prefixes_of(const std::string& path,
                                                      const std::optional<std::string>& home) {
  std::vector<std::filesystem::path> prefixes;
  const auto add = [&](const std::filesystem::path& prefix) {
    const bool is_new = std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end();
    if (prefix.is_absolute() && is_new) prefixes.push_back(prefix);
  };
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path programs(folder);
    if (programs.filename() == "bin") add(programs.parent_path());
  }
  if (home) add(std::filesystem::path(*home) / ".local");
  add("/usr/local");
  add("/usr");
  return prefixes;
}

Environment read_environment() {
  Environment environment;
  environment.hub = {.hf_hub_cache = variable("HF_HUB_CACHE"),
                     .huggingface_hub_cache = variable("HUGGINGFACE_HUB_CACHE"),
                     .hf_home = variable("HF_HOME"),
                     .xdg_cache_home = variable("XDG_CACHE_HOME"),
                     .home = variable("HOME"),
                     .ollama_models = variable("OLLAMA_MODELS"),
                     .llama_cache = variable("LLAMA_CACHE")};
  environment.editor = variable("VISUAL").value_or(variable("EDITOR").value_or(""));
  environment.no_color = variable("NO_COLOR").has_value();
  environment.force_color = is_on("CLICOLOR_FORCE") || is_on("FORCE_COLOR");
  const char* const cards = std::getenv("CUDA_VISIBLE_DEVICES");
  environment.hides_cards = cards != nullptr && (*cards == '\0' || *cards == '-');
  environment.cuda_carveout = variable("HYB_CUDA_CARVEOUT");
  environment.cuda_early_starts = variable("HYB_CUDA_EARLY_STARTS");
  environment.python_prefixes = python_prefixes_of(variable("PATH").value_or(""), variable("HOME"));
  environment.term = variable("TERM").value_or("");
  environment.columns = parse_number<int>(variable("COLUMNS").value_or(""));
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const auto locale = variable(name)) {
      environment.utf8 = names_utf8(*locale);
      break;
    }
  }
  environment.state_folder = folder_of("XDG_STATE_HOME", ".local/state");
  environment.data_folder = folder_of("XDG_DATA_HOME", ".local/share");
  const auto config = variable("HYB_CONFIG");
  environment.names_config_file = config.has_value();
  if (config) environment.config_file = *config;
  if (const auto folder = folder_of("XDG_CONFIG_HOME", ".config"); folder && !config) {
    environment.config_file = *folder / "config.toml";
  }
  return environment;
}

void prepare_cards(const Environment& environment) {
  kernels::set_python_prefixes(environment.python_prefixes);
  kernels::set_launch_tuning(
      kernels::launch_tuning_of(environment.cuda_carveout, environment.cuda_early_starts));
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

namespace {

std::optional<std::size_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// The page cache of a group and of those below it, in bytes.
std::size_t page_cache_bytes(const ControlGroup& group) {
  const std::string prefix = group.is_unified ? "" : "total_";
  std::ifstream file(group.folder / "memory.stat");
  std::string name;
  std::size_t value = 0, bytes = 0;
  while (file >> name >> value) {
    if (name == prefix + "inactive_file" || name == prefix + "active_file") bytes += value;
  }
  return bytes;
}

void add_group_limits(const ControlGroup& group, std::vector<MemoryLimit>& limits) {
  constexpr std::size_t unlimited = std::size_t{1} << 62;  // version 1 rounds the largest number
  const auto used =
      number_in(group.folder / (group.is_unified ? "memory.current" : "memory.usage_in_bytes"));
  const std::vector<std::string> files = group.is_unified
                                             ? std::vector<std::string>{"memory.max", "memory.high"}
                                             : std::vector<std::string>{"memory.limit_in_bytes"};
  for (const std::string& file : files) {
    const auto bytes = number_in(group.folder / file);
    if (!bytes || *bytes >= unlimited) continue;
    const std::size_t all = used.value_or(0);
    limits.push_back({.source = (group.folder / file).string(),
                      .bytes = *bytes,
                      .used = all - std::min(all, page_cache_bytes(group))});
  }
}

void add_address_limit(const std::filesystem::path& root, std::vector<MemoryLimit>& limits) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const std::size_t pages = number_in(root / "proc/self/statm").value_or(0);
  limits.push_back({.source = "ulimit -v",
                    .bytes = limit.rlim_cur,
                    .used = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE))});
}

}  // namespace

std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root) {
  std::vector<MemoryLimit> limits;
  for (const ControlGroup& group : control_groups("memory", root)) add_group_limits(group, limits);
  add_address_limit(root, limits);
  std::stable_sort(limits.begin(), limits.end(),
                   [](const MemoryLimit& a, const MemoryLimit& b) { return a.free() < b.free(); });
  return limits;
}

std::string limit_note(const std::vector<MemoryLimit>& limits, std::size_t needed) {
  if (limits.empty() || limits.front().free() >= needed) return "";
  const MemoryLimit& limit = limits.front();
  return fmt::format("; {} limits this process to {}, of which {} are in use", limit.source,
                     bytes_text(limit.bytes), bytes_text(limit.used));
}

std::size_t machine_bytes() {
  std::size_t bytes = need_meminfo("MemTotal");
  for (const MemoryLimit& limit : memory_limits()) bytes = std::min(bytes, limit.bytes);
  return bytes;
}

std::size_t available_bytes() {
  const std::size_t available = need_meminfo("MemAvailable");
  const std::vector<MemoryLimit> limits = memory_limits();
  return limits.empty() ? available : std::min(available, limits.front().free());
}

std::size_t without_room(std::size_t available) {
  const std::size_t room = std::clamp(available / 8, std::size_t{256} << 20, std::size_t{2} << 30);
  return available > 2 * room ? available - room : available / 2;
}

std::size_t free_addresses() {
  std::vector<MemoryLimit> limits;
  add_address_limit("/", limits);
  return limits.empty() ? std::numeric_limits<std::size_t>::max()
                        : without_room(limits.front().free());
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
