#include "core/base/control_groups.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/files.h"

namespace control_groups_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

/// The groups' folders without the root.
std::vector<std::string> names(const TemporaryFolder& root, std::string_view controller) {
  std::vector<std::string> names;
  for (const ControlGroup& group : control_groups(controller, root.path())) {
    names.push_back((group.is_unified ? "v2 " : "v1 ") +
                    group.folder.lexically_relative(root.path()).string());
  }
  return names;
}

using Names = std::vector<std::string>;

constexpr const char* unified_mount =
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

}  // namespace

TEST_SUITE("core/base/control_groups") {
  TEST_CASE("version 2: a nested slice and all slices above it, the innermost first") {
    const TemporaryFolder root;
    root.write("proc/self/cgroup", "0::/user.slice/user-1000.slice/job.scope\n");
    root.write("proc/self/mountinfo",
               std::string("22 1 0:20 / /proc rw - proc proc rw\n") + unified_mount);
    root.write("sys/fs/cgroup/user.slice/user-1000.slice/job.scope/memory.max", "1\n");
    CHECK(names(root, "memory") == Names{"v2 sys/fs/cgroup/user.slice/user-1000.slice/job.scope",
                                         "v2 sys/fs/cgroup/user.slice/user-1000.slice",
                                         "v2 sys/fs/cgroup/user.slice", "v2 sys/fs/cgroup"});
  }

  TEST_CASE("version 1 with version 2 besides it: both hierarchies count") {
    const TemporaryFolder root;
    root.write("proc/self/cgroup",
               "9:name=systemd:/\n4:memory:/slurm/uid_1/job_7\n2:cpu,cpuacct:/other\n0::/two\n");
    root.write("proc/self/mountinfo",
               "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
               "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
               "36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
               "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    root.write("sys/fs/cgroup/memory/slurm/uid_1/job_7/memory.limit_in_bytes", "1\n");
    root.write("sys/fs/cgroup/unified/two/memory.max", "1\n");
    CHECK(names(root, "memory") ==
          Names{"v1 sys/fs/cgroup/memory/slurm/uid_1/job_7", "v1 sys/fs/cgroup/memory/slurm/uid_1",
                "v1 sys/fs/cgroup/memory/slurm", "v1 sys/fs/cgroup/memory",
                "v2 sys/fs/cgroup/unified/two", "v2 sys/fs/cgroup/unified"});
    CHECK(names(root, "cpu") == Names{"v2 sys/fs/cgroup/unified/two", "v2 sys/fs/cgroup/unified"});
  }

  TEST_CASE("in a container the mount shows the container's group, whatever its name is") {
    const TemporaryFolder root;
    root.write("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "1\n");
    root.write("proc/self/mountinfo",
               "35 31 0:32 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    for (const char* own : {"/docker/0123", "/", "/docker/4567", "/../../else"}) {
      CAPTURE(own);
      root.write("proc/self/cgroup", std::string("4:memory:") + own + "\n");
      CHECK(names(root, "memory") == Names{"v1 sys/fs/cgroup/memory"});
    }
    root.write("proc/self/cgroup", "4:memory:/docker/0123/inner\n");
    CHECK(names(root, "memory") ==
          Names{"v1 sys/fs/cgroup/memory/inner", "v1 sys/fs/cgroup/memory"});
    root.write("proc/self/cgroup", "0::/docker/0123\n");
    root.write("proc/self/mountinfo", unified_mount);
    CHECK(names(root, "memory") == Names{"v2 sys/fs/cgroup"});
  }

  TEST_CASE("a mount elsewhere, with a space in its name") {
    const TemporaryFolder root;
    root.write("proc/self/cgroup", "0::/a\n");
    root.write("proc/self/mountinfo", "31 23 0:28 / /my\\040groups rw - cgroup2 none rw\n");
    root.write("my groups/a/memory.max", "1\n");
    CHECK(names(root, "memory") == Names{"v2 my groups/a", "v2 my groups"});
  }

  TEST_CASE("nonsense is no group") {
    const TemporaryFolder root;
    CHECK(names(root, "memory").empty());
    root.write("proc/self/mountinfo", unified_mount);
    CHECK(names(root, "memory").empty());
    root.write("proc/self/cgroup", "0:\n:\n\nxyz\n");
    CHECK(names(root, "memory").empty());
    root.write("proc/self/cgroup", "0::/\n");
    root.write("proc/self/mountinfo", "31 23 0:28 / /sys\n-\n - cgroup2\n");
    CHECK(names(root, "memory").empty());
  }
}

}  // namespace control_groups_test
