#pragma once

#include "core/base/log.h"

namespace hyb::testing {

/// While it lives, warnings that a test provokes are not printed.
class QuietLog {
 public:
  QuietLog() { log::set_level(log::Level::error); }
  ~QuietLog() { log::set_level(log::Level::info); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
};

}  // namespace hyb::testing
