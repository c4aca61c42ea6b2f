#include "core/base/control_groups.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "core/base/strings.h"

namespace hyb {
namespace {

namespace fs = std::filesystem;

bool lists_word(std::string_view list, std::string_view word) {
  return std::ranges::count(split(list, ','), word) > 0;
}

/// The kernel writes a space as \040, other separators alike.
std::string without_octal(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 3 < text.size() && is_octal(text[at + 1]) &&
        is_octal(text[at + 2]) && is_octal(text[at + 3])) {
      out += static_cast<char>((text[at + 1] - '0') * 64 + (text[at + 2] - '0') * 8 + text[at + 3] -
                               '0');
      at += 3;
    } else {
      out += text[at];
    }
  }
  return out;
}

/// A mounted hierarchy of control groups.
struct GroupMount {
  fs::path group;   // that its folder shows
  fs::path folder;  // where it is mounted
  bool is_unified;
};

/// A line is "id parent device group folder options [tags] - type source super_options".
std::optional<GroupMount> group_mount(const std::string& line, std::string_view controller) {
  std::istringstream words(line);
  std::string skipped, group, folder, word, type, options;
  words >> skipped >> skipped >> skipped >> group >> folder;
  while (words >> word && word != "-") {
  }
  if (!(words >> type >> skipped >> options)) return std::nullopt;
  const bool is_unified = type == "cgroup2";
  if (!is_unified && !(type == "cgroup" && lists_word(options, controller))) return std::nullopt;
  return GroupMount{without_octal(group), without_octal(folder), is_unified};
}

/// The group of this process in a hierarchy. A line is "number:controllers:/group", without
/// controllers for version 2.
std::optional<fs::path> own_group(const fs::path& memberships, bool is_unified,
                                  std::string_view controller) {
  std::ifstream lines(memberships);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (is_unified ? controllers.empty() : lists_word(controllers, controller)) {
      return fs::path(line.substr(second + 1)).lexically_normal();
    }
  }
  return std::nullopt;
}

/// The group as a path below the mount's folder; empty where the mount does not show it.
fs::path below_mount(const fs::path& group, const fs::path& shown) {
  const fs::path relative = group.lexically_relative(shown);
  const bool is_below = !relative.empty() && relative != "." && *relative.begin() != "..";
  return is_below ? relative : fs::path();
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  std::vector<ControlGroup> groups;
  std::ifstream mounts(root / "proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::optional<GroupMount> mount = group_mount(line, controller);
    if (!mount) continue;
    const auto own = own_group(root / "proc/self/cgroup", mount->is_unified, controller);
    if (!own) continue;
    const fs::path folder = root / mount->folder.relative_path();
    for (fs::path below = below_mount(*own, mount->group);; below = below.parent_path()) {
      std::error_code ignored;
      const fs::path group = below.empty() ? folder : folder / below;
      if (fs::is_directory(group, ignored)) groups.push_back({group, mount->is_unified});
      if (below.empty()) break;
    }
  }
  return groups;
}

}  // namespace hyb
