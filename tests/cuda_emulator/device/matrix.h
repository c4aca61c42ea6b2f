#pragma once

#include <cstdint>

#include "tests/cuda_emulator/device/grid.h"

namespace emulator {

/// What one lane gives to an mma instruction. It takes back four f32.
struct MmaOperands {
  std::uint32_t a[4], b[2];
  float d[4];
};

/// The actions of the warp's matrix instructions. Products are exact and summed in f32 from d
/// upwards in k, each sum rounded to nearest; a card sums in an order and a rounding of its own.
/// Where numbers are inexact (inexact.h): eight products and the sum so far are cut to 24 bits
/// below the largest of them, as cards of sm_80 are reported to do with one bit more, and added
/// exactly.
void mma_bf16_action(std::uint32_t mask, const LaneSlots& lanes);

/// ldmatrix: a lane gives the address of a row and takes one register per matrix.
template <bool Transposed>
void ldmatrix_action(std::uint32_t mask, const LaneSlots& lanes);

}  // namespace emulator
