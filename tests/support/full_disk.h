#pragma once

#include <sys/resource.h>

#include <csignal>

namespace hyb::testing {

/// Files of this process end at `bytes` as long as one lives, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit narrow{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &narrow);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit old_{};
  void (*handler_)(int);
};

}  // namespace hyb::testing
