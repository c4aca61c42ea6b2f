#pragma once

#include <cstddef>

namespace emulator {

inline constexpr int cards_max = 8;

/// How many cards there are, all alike: at first as many as HYB_EMULATED_CARDS in the environment
/// says, else 1. From 1 to cards_max. What a card that is taken away still holds is out of reach.
void set_cards(int count);

/// Can cards reach each other's memory? At first they can. Copies between cards work either way.
void set_peer_access(bool can);

/// Shared memory that the emulated card lets a block have: at first 227 KB, as sm_90 has; sm_86 and
/// sm_89 have 99 KB. For streams made from now on.
void set_block_shared_bytes(std::size_t bytes);

/// Registers of a multiprocessor of the emulated card: at first 65536, as every card has.
void set_registers(unsigned count);

}  // namespace emulator
