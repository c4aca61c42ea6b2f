#pragma once

#include <string>

namespace hyb::app {

/// "2026-01-31T12:00:00Z"
std::string utc_now();

}  // namespace hyb::app
