#pragma once

#include <cstdint>

namespace hyb::perf {

/// Number of heap allocations of this process (operator new).
std::int64_t allocations();

}  // namespace hyb::perf
