#pragma once

#include <cstdint>
#include <string>

#include "tests/cuda_emulator/device/schedule.h"

namespace emulator {

/// How kernels run from now on.
void set_schedule(const Schedule& schedule);

/// What kernels were compiled for, as cudaFuncAttributes has it: 90 is sm_90. Their instructions
/// stay the same.
void set_ptx_version(int version);

/// What went wrong first since the last reset, as text; empty when nothing did. Work that was
/// enqueued and not waited for has not run.
std::string fault_text();

/// What the host enqueued outside of captures. A graph's launch is one call.
struct HostCalls {
  std::int64_t kernels = 0, graphs = 0, copies = 0, events = 0;
  std::int64_t early_kernels = 0;   ///< of the kernels, those that may start early
  std::int64_t waits = 0;           ///< for a stream or an event
  std::int64_t waits_for_work = 0;  ///< of these, the ones that found work undone
  bool operator==(const HostCalls&) const = default;
};

/// Since the last call of this.
HostCalls take_host_calls();

/// Blocks of all kernels that ran since the last call of this, whether launched or replayed.
std::int64_t take_blocks_run();

/// Forgets faults and work that is not done, and sets the schedule back. Allocations stay.
void reset();

}  // namespace emulator
