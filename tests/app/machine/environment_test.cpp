#include "app/machine/environment.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/files.h"

namespace environment_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

constexpr const char* hybrid_mounts =
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

/// Those of control groups: a limit on addresses may be this process's own.
std::vector<MemoryLimit> group_limits(const TemporaryFolder& root) {
  std::vector<MemoryLimit> limits = memory_limits(root.path());
  std::erase_if(limits, [](const MemoryLimit& limit) { return limit.source == "ulimit -v"; });
  return limits;
}

}  // namespace

TEST_SUITE("app/environment") {
  TEST_CASE("version 2: the group that leaves least is first, page cache is not in use") {
    const TemporaryFolder root;
    root.write("proc/self/cgroup", "0::/job.slice/step.scope\n");
    root.write("proc/self/mountinfo", hybrid_mounts);
    root.write("sys/fs/cgroup/job.slice/step.scope/memory.max", "max\n");
    root.write("sys/fs/cgroup/job.slice/step.scope/memory.high", "900000\n");
    root.write("sys/fs/cgroup/job.slice/step.scope/memory.current", "100000\n");
    root.write("sys/fs/cgroup/job.slice/memory.max", "800000\n");
    root.write("sys/fs/cgroup/job.slice/memory.current", "700000\n");
    root.write("sys/fs/cgroup/job.slice/memory.stat",
               "anon 90000\ninactive_file 400000\nactive_file 100000\nshmem 3\n");
    const auto limits = group_limits(root);
    REQUIRE(limits.size() == 2);
    CHECK(limits[0].source == (root.path() / "sys/fs/cgroup/job.slice/memory.max").string());
    CHECK(limits[0].bytes == 800000);
    CHECK(limits[0].used == 200000);
    CHECK(limits[1].source ==
          (root.path() / "sys/fs/cgroup/job.slice/step.scope/memory.high").string());
    CHECK(limits[1].free() == 800000);
  }

  TEST_CASE("version 1: nested groups, sums of groups below, no limit as a number") {
    const TemporaryFolder root;
    const std::string top = "sys/fs/cgroup/memory/";
    root.write("proc/self/cgroup", "4:memory:/slurm/job_7\n0::/\n");
    root.write("proc/self/mountinfo", hybrid_mounts);
    root.write(top + "memory.limit_in_bytes", "9223372036854771712\n");
    root.write(top + "slurm/job_7/memory.limit_in_bytes", "314572800\n");
    root.write(top + "slurm/job_7/memory.usage_in_bytes", "10485760\n");
    root.write(top + "slurm/job_7/memory.stat",
               "inactive_file 1\ntotal_inactive_file 5242880\ntotal_active_file 1048576\n");
    root.write(top + "slurm/memory.limit_in_bytes", "1000\n");
    root.write(top + "slurm/memory.usage_in_bytes", "2000\n");
    const auto limits = group_limits(root);
    REQUIRE(limits.size() == 2);
    CHECK(limits[0].free() == 0);
    CHECK(limits[1].source == (root.path() / top / "slurm/job_7/memory.limit_in_bytes").string());
    CHECK(limits[1].bytes == 314572800);
    CHECK(limits[1].used == 4194304);
  }

  TEST_CASE("a note on what does not fit names the limit and the figures") {
    const std::vector<MemoryLimit> limits = {
        {.source = "/x/memory.max", .bytes = 300U << 20, .used = 9U << 20},
        {.source = "/memory.max", .bytes = 900U << 20, .used = 0}};
    CHECK(limit_note(limits, 292U << 20) ==
          "; /x/memory.max limits this process to 300.0 MiB, of which 9.0 MiB are in use");
    CHECK(limit_note(limits, 291U << 20) == "");
    CHECK(limit_note({}, 1U << 30) == "");
  }

  TEST_CASE("without control groups, and on this machine") {
    const TemporaryFolder root;
    CHECK(group_limits(root).empty());
    CHECK(machine_bytes() > 0);
    CHECK(available_bytes() <= machine_bytes());
  }

  TEST_CASE("Python may be where programs are, by absolute paths, each once") {
    const auto prefixes = python_prefixes_of(
        "/opt/venv/bin:bin:./x/bin::/usr/bin:/opt/tools:/opt/venv/bin:/usr/bin", "/home/a");
    CHECK(prefixes ==
          std::vector<std::filesystem::path>{"/opt/venv", "/usr", "/home/a/.local", "/usr/local"});
    CHECK(python_prefixes_of("", "relative") ==
          std::vector<std::filesystem::path>{"/usr/local", "/usr"});
  }
}

}  // namespace environment_test
