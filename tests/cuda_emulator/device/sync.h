#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "tests/cuda_emulator/device/accesses.h"
#include "tests/cuda_emulator/device/grid.h"

namespace emulator {

using Where = std::source_location;

/// A warp's collective: waits until all lanes of `mask` have arrived with the same action and mask;
/// the last of them carries it out for all. Faults when the lanes of the mask do different things,
/// when one has left the kernel, or, for an `aligned` one, when they are at different places.
struct Collective {
  const char* name;
  CollectiveAction action;
  bool aligned = false;
};
void meet(const Collective& collective, std::uint32_t mask, const void* in, void* out, Where where);

void sync_warp(std::uint32_t mask, Where where);

/// __syncthreads: all threads of the block that have not left. Returns how many voted.
unsigned sync_block(bool vote, const char* name, Where where);

/// bar.sync and bar.arrive: barriers 1 to 15, of `threads` threads.
void sync_barrier(int barrier, int threads, Where where);
void arrive_at_barrier(int barrier, int threads, Where where);

void sync_grid(Where where);
void wait_for_previous_kernel(Where where);
void let_next_kernel_start();

/// Lets others run before this thread looks at memory again.
void spin_pause(Where where);

/// What every thread does before it leaves the kernel.
void leave_kernel();

/// What the threads of a block wait for, one line per warp and place; for a report.
std::string describe_waiting(const Block& block);

/// Faults unless `at` is a multiple of `bytes`, as a card does; a CPU would not notice.
void check_alignment(const char* what, const void* at, std::size_t bytes, Where where);
/// Faults unless all of it is this block's shared memory.
void check_shared(const char* what, const void* at, std::size_t bytes, Where where);
/// Faults unless all of it is inside of one allocation that the kernel's card may touch.
void check_global(const char* what, const void* at, std::size_t bytes, Where where);
void check_index(int i, int count, Where where);

void* dynamic_shared(std::size_t bytes, std::size_t alignment, Where where);
void* shared_object(const void* key, std::size_t bytes, std::size_t alignment, Where where);

void copy_async(void* to, const void* from, std::size_t bytes, bool is_there, Where where);

}  // namespace emulator
