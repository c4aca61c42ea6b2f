#pragma once

#include <memory>

#include "kernels/arena/superblock_map.h"
#include "kernels/device.h"

namespace hyb::kernels {

/// Superblocks in this machine's memory, by the arena that reads fastest: shared memory where views
/// alias (mode flip, two views or more), else private memory, which gets huge pages on most systems
/// (shared memory without them, measured on an AVX-512 machine: 2-10 % slower in one go, 14-27 % in
/// scattered 16 KiB).
///
/// Where shared memory cannot be had (ulimit -f is too small), or would take more mappings than
/// vm.max_map_count allows, flip becomes remap, with a line in the log: the answers are the same.
/// Where remap and flat would take too many, unused addresses read as zeros instead of faulting.
///
/// Where it is shared with forked processes, one arena is for all modes, and none is strict.
std::unique_ptr<SuperblockMap> make_host_superblocks(const SuperblockShape& shape,
                                                     SuperblockMapOptions options);

/// Superblocks in the memory of a device: make_host_superblocks on the CPU; on a card the driver's
/// virtual memory, where flip stays flip.
std::unique_ptr<SuperblockMap> make_superblocks(Device device, const SuperblockShape& shape,
                                                const SuperblockMapOptions& options);

/// Returns what the driver takes now to create a handle or to map one into a view, on average,
/// tried with a few of the smallest, in seconds; 0 on the CPU, and where the card has no room to
/// try it.
double driver_call_seconds(Device device, int card = 0);

}  // namespace hyb::kernels
