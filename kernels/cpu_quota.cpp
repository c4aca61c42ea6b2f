#include "kernels/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace hyb::kernels {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// "max 100000" or "150000 100000".
std::optional<double> quota_v2(const fs::path& group) {
  std::istringstream words(first_line(group / "cpu.max"));
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_v1(const fs::path& group) {
  std::istringstream quota_text(first_line(group / "cpu.cfs_quota_us"));
  std::istringstream period_text(first_line(group / "cpu.cfs_period_us"));
  double quota = 0, period = 0;
  if (!(quota_text >> quota) || !(period_text >> period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return quota / period;
}

void take_least(std::optional<double>& least, const std::optional<double>& quota) {
  if (quota) least = least ? std::min(*least, *quota) : *quota;
}

/// The group and all its parents up to the mount itself.
template <typename Read>
std::optional<double> least_upwards(const fs::path& mount, std::string_view group, Read read) {
  std::optional<double> least;
  fs::path relative = fs::path(group).relative_path();
  while (true) {
    take_least(least, read(mount / relative));
    if (relative.empty()) return least;
    relative = relative.parent_path();
  }
}

/// Whether a comma-separated list has the word "cpu" (not "cpuset").
bool names_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

std::optional<double> cpu_quota(std::string_view memberships, const fs::path& root) {
  std::optional<double> least;
  std::istringstream lines{std::string(memberships)};
  for (std::string line; std::getline(lines, line);) {  // number:controllers:/group
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      take_least(least, least_upwards(root, group, quota_v2));
      take_least(least, least_upwards(root / "unified", group, quota_v2));
    } else if (names_cpu(controllers)) {
      take_least(least, least_upwards(root / "cpu", group, quota_v1));
      take_least(least, least_upwards(root / controllers, group, quota_v1));
    }
  }
  return least;
}

}  // namespace hyb::kernels
