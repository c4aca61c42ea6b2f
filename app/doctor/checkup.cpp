#include "app/doctor/checkup.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "app/commands/commands.h"
#include "app/machine.h"
#include "app/ui/terminal.h"
#include "core/base/error.h"
#include "core/io/model_folder.h"
#include "kernels/thread_pool.h"
#include "models/families.h"

namespace hyb::app {
namespace {

namespace fs = std::filesystem;

std::string line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<std::size_t> address_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

HubModel look_at(const std::string& name, const HubEnvironment& environment) {
  try {
    const auto config = models::Config::from_folder(find_model_folder(name, environment));
    models::family_of(config).plan(config);
    return {.name = name, .status = "runs", .runs = true};
  } catch (const Error& error) {
    return {.name = name, .status = error.what(), .runs = false};
  }
}

}  // namespace

std::string chosen_of(const std::string& choices) {
  const std::size_t begin = choices.find('[');
  const std::size_t end = choices.find(']', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  return choices.substr(begin + 1, end - begin - 1);
}

bool flip_is_slow(const Checkup& checkup) {
  const std::string& shared = checkup.shared_huge_pages;
  const bool has_huge_pages = checkup.huge_pages == "always" || checkup.huge_pages == "madvise";
  return has_huge_pages && (shared.empty() || shared == "never" || shared == "deny");
}

std::vector<HubModel> hub_models(const fs::path& hub, const HubEnvironment& environment) {
  constexpr std::size_t models_max = 1000;
  constexpr std::string_view prefix = "models--";
  std::vector<HubModel> models;
  std::error_code error;
  for (fs::directory_iterator entry(hub, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string folder = entry->path().filename().string();
    if (!folder.starts_with(prefix) || models.size() == models_max) continue;
    std::string name = folder.substr(prefix.size());
    const std::size_t dashes = name.find("--");
    if (dashes != std::string::npos) name.replace(dashes, 2, "/");
    models.push_back(look_at(name, environment));
  }
  std::sort(models.begin(), models.end(),
            [](const HubModel& a, const HubModel& b) { return a.name < b.name; });
  return models;
}

Checkup examine(const Environment& environment) {
  const kernels::UsableCpus usable = kernels::usable_cpus();
  Checkup checkup;
  checkup.version = version_text();
  checkup.cpu = cpu_name();
  checkup.isa = kernels::best_isa();
  checkup.cpus = static_cast<int>(std::thread::hardware_concurrency());
  checkup.threads = usable.count;
  checkup.quota_binds = usable.quota_binds;
  checkup.memory = meminfo_bytes("MemTotal").value_or(0);
  checkup.memory_available = available_bytes();
  checkup.address_limit = address_limit();
  checkup.group_limit = number_in("/sys/fs/cgroup/memory.max");
  checkup.huge_pages = chosen_of(line_of("/sys/kernel/mm/transparent_hugepage/enabled"));
  checkup.shared_huge_pages =
      chosen_of(line_of("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  checkup.hub_folder = hub_folder(environment.hub);
  std::error_code ignored;
  checkup.has_hub_folder = fs::is_directory(checkup.hub_folder, ignored);
  checkup.hub_models = hub_models(checkup.hub_folder, environment.hub);
  checkup.cuda = examine_cuda();
  checkup.output_is_terminal = is_terminal(Stream::output);
  checkup.term = environment.term;
  checkup.utf8 = environment.utf8;
  checkup.state_folder = environment.state_folder;
  return checkup;
}

}  // namespace hyb::app
