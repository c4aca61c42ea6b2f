#pragma once

#include <string>

#include "tests/cuda_emulator/device/schedule.h"

namespace emulator {

/// How kernels run from now on.
void set_schedule(const Schedule& schedule);

/// What went wrong first since the last reset, in words; empty when nothing did. Work that was
/// asked for and not waited for has not run.
std::string fault_text();

/// Forgets faults and work that is not done, and sets the schedule back. Allocations stay.
void reset();

}  // namespace emulator
