#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

/// The percentage of L1 that a kernel wants as shared memory; -1: what the driver chooses.
int carveout_of(const void* kernel);

/// Blocks of all kernels that ran since the last call of this, whether launched or replayed.
std::int64_t take_blocks_run();

/// Of shared memory: accesses of up to 128 bytes by lanes of a warp, and the cycles that these
/// take: of each, as many as the busiest bank has different words.
struct BankCounts {
  std::int64_t accesses = 0, cycles = 0;
};
/// Needs instrumented kernels, as hyb_tests_cuda_checked has them. Where the environment has
/// HYB_EMULATED_BANKS, the counts of all kernels are printed at the end.
void count_banks(bool is_on);
bool counts_banks();
/// Since the last call of this, of the kernel with this name: "gemv_kernel<1, false, bf16>".
BankCounts take_bank_counts(const std::string& kernel);

/// What the host enqueued, in order: a kernel, a product of a library, or a copy or fill of the
/// device's memory.
struct RecordedWork {
  const void* kernel = nullptr;  ///< null: something else
  unsigned blocks = 0, threads = 0;
  std::size_t shared_bytes = 0;  ///< dynamic
  bool cooperative = false, starts_early = false;
  std::size_t bytes = 0;                     ///< of a copy or fill
  std::array<std::int64_t, 3> product = {};  ///< tokens, outputs, inner
  std::vector<std::byte> arguments = {};     ///< of a kernel
};

/// From now on memory of the device is address ranges that cannot be touched, and work is recorded
/// rather than done: a model needs no memory and no numbers. For a whole process, before its first
/// allocation.
void record_only(std::size_t device_bytes);
bool is_recording_only();

/// What was enqueued since the last call, whether captured, launched or recorded only. Kept from
/// keep_records() to end_records().
void keep_records();
void end_records();
std::vector<RecordedWork> take_records();

/// Forgets faults and work that is not done, and sets the schedule back. Allocations stay.
void reset();

}  // namespace emulator
