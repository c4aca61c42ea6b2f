#pragma once

#include <cstddef>

namespace emulator {

/// Shared memory that the emulated card lets a block have: at first 227 KB, as sm_90 has; sm_86 and
/// sm_89 have 99 KB. For streams made from now on.
void set_block_shared_bytes(std::size_t bytes);

/// Registers of a multiprocessor of the emulated card: at first 65536, as every card has.
void set_registers(unsigned count);

}  // namespace emulator
