#pragma once

#include <cstddef>

namespace emulator {

/// What a kernel takes of a multiprocessor, as ptxas reported it (kernels/cuda/ptxas.tsv): the most
/// of all cards that the table has. Zeros for kernels that are not in it, as those of tests.
struct KernelNeeds {
  int registers = 0;             ///< of a thread
  std::size_t shared_bytes = 0;  ///< static
};
KernelNeeds needs_of(const void* kernel);

/// Registers that a block takes: of whole warps, equally many on each of a
/// multiprocessor's four parts, in units of eight of a thread.
unsigned registers_of_block(const KernelNeeds& needs, unsigned threads);

}  // namespace emulator
