#include "kernels/cpu_quota.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <string>

using namespace hyb::kernels;
namespace fs = std::filesystem;

namespace {

/// A made-up /sys/fs/cgroup.
class Root {
 public:
  Root() {
    static int count = 0;
    path_ = fs::temp_directory_path() /
            ("hyb_cpu_quota_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    fs::create_directories(path_);
  }
  ~Root() { fs::remove_all(path_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

TEST_SUITE("kernels/cpu_quota") {
  TEST_CASE("version 2: the least of a group and its parents") {
    const Root root;
    root.write("a/b/cpu.max", "250000 100000\n");
    CHECK(cpu_quota("0::/a/b\n", root.path()) == 2.5);
    root.write("a/cpu.max", "150000 100000\n");
    CHECK(cpu_quota("0::/a/b\n", root.path()) == 1.5);
    root.write("a/cpu.max", "max 100000\n");
    CHECK(cpu_quota("0::/a/b\n", root.path()) == 2.5);
    CHECK(cpu_quota("0::/a\n", root.path()) == std::nullopt);
  }

  TEST_CASE(
      "version 2 in a container: the group's own name is not visible, its limit is at the root") {
    const Root root;
    root.write("cpu.max", "50000 100000\n");
    CHECK(cpu_quota("0::/docker/0123abcd\n", root.path()) == 0.5);
  }

  TEST_CASE("version 1, alone or beside version 2; -1 is no limit") {
    const Root root;
    root.write("cpu/job/cpu.cfs_quota_us", "300000\n");
    root.write("cpu/job/cpu.cfs_period_us", "100000\n");
    CHECK(cpu_quota("5:devices:/\n1:cpu,cpuacct:/job\n0::/\n", root.path()) == 3.0);
    CHECK(cpu_quota("1:cpuset:/job\n", root.path()) == std::nullopt);
    root.write("cpu/job/cpu.cfs_quota_us", "-1\n");
    CHECK(cpu_quota("1:cpu:/job\n", root.path()) == std::nullopt);
    root.write("unified/job/cpu.max", "100000 100000\n");
    CHECK(cpu_quota("1:cpu:/job\n0::/job\n", root.path()) == 1.0);
  }

  TEST_CASE("nonsense is no limit") {
    const Root root;
    root.write("cpu.max", "fast\n");
    CHECK(cpu_quota("", root.path()) == std::nullopt);
    CHECK(cpu_quota("0::/\nxyz\n:\n::\n", root.path()) == std::nullopt);
    root.write("cpu.max", "100000 0\n");
    CHECK(cpu_quota("0::/\n", root.path()) == std::nullopt);
  }
}
