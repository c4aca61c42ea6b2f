#include "app/machine.h"

#include <algorithm>
#include <fstream>

#include "core/base/error.h"

namespace hyb::app {
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
