#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace hyb {

/// A control group as the folder of its files.
struct ControlGroup {
  std::filesystem::path folder;
  bool is_unified;  ///< version 2: its files have other names than version 1's
};

/// This process's own groups and all groups above them that can limit what a controller ("memory",
/// "cpu") counts, the innermost of each hierarchy first: of version 1, where the controller is
/// mounted, and of version 2, also mounted besides version 1. By /proc/self/cgroup and
/// /proc/self/mountinfo; empty where those cannot be read. In a container, groups that are not
/// mounted are left out: the mount's own folder has the limits of the container. `root` precedes
/// every path; it is for tests.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root = "/");

}  // namespace hyb
