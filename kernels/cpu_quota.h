#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace hyb::kernels {

/// CPUs' worth of time that the control groups of a process grant it, the least over the group and
/// its parents; none where nothing is limited. Knows cpu.max (v2, also in a hybrid hierarchy) and
/// cpu.cfs_quota_us (v1). `memberships` is the text of /proc/self/cgroup, `root` is /sys/fs/cgroup.
/// A group that a container cannot see under its own name is looked for at the mounts' roots.
std::optional<double> cpu_quota(std::string_view memberships, const std::filesystem::path& root);

}  // namespace hyb::kernels
