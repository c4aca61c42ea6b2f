#pragma once

#include <cstdint>

namespace hyb::perf {

/// How often this process has asked for heap memory (operator new).
std::int64_t allocations();

}  // namespace hyb::perf
