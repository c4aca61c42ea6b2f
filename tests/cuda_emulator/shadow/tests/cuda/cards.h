#pragma once

#include "tests/cuda_emulator/card.h"

namespace hyb::kernels::testing {

/// Calls body() for every size of shared memory that kernels choose their tiles by.
template <typename Body>
void on_every_card(Body&& body) {
  constexpr std::size_t sm_90 = 227 << 10, sm_86 = 99 << 10;
  struct Restored {
    ~Restored() { emulator::set_block_shared_bytes(sm_90); }
  } const restored;
  for (const std::size_t bytes : {sm_86, sm_90}) {
    emulator::set_block_shared_bytes(bytes);
    body();
  }
}

}  // namespace hyb::kernels::testing
