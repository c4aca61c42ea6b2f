#pragma once

#include <memory>

#include "kernels/arena/superblock_map.h"

namespace hyb::kernels {

/// Superblocks in this machine's memory, by the arena that reads fastest: shared memory where views
/// alias (mode flip, two views or more), else private memory, which gets huge pages on most systems
/// (measured without them, AVX-512 machine: 5-9 % slower in one go, 20 % in scattered 16 KiB).
/// Where ulimit -f is too small for shared memory, flip becomes remap, with a line in the log: the
/// answers are the same.
std::unique_ptr<SuperblockMap> make_host_superblocks(const SuperblockShape& shape,
                                                     SuperblockMapOptions options);

}  // namespace hyb::kernels
