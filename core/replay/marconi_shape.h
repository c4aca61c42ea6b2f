#pragma once

#include <cstdint>

#include "core/replay/shape.h"

namespace hyb {

/// The hybrid 7B model of the Marconi paper (Pan et al. 2025): counts of layers and widths.
struct MarconiModel {
  std::int32_t ssm = 24;
  std::int32_t attention = 4;
  std::int32_t mlp = 28;
  std::int32_t width = 4096;
  std::int32_t state_dim = 128;
};

/// The paper's model of bytes and FLOPs, in 16-bit numbers, for l tokens and width d:
///   attention 8 l d^2 + 4 l^2 d FLOPs, 4 l d bytes of keys and values
///   mlp       16 l d^2
///   ssm       12 l d^2 + 16 l d n + 10 l d, state 2 d n + 8 (2 d + 2 n) bytes (matrix, conv
///   window)
/// Seconds are FLOPs at `flops_per_second`. An int8 snapshot holds a byte per element of the matrix
/// and a 16-bit scale per row, its window as it is.
ReplayShape marconi_shape(const MarconiModel& model, double flops_per_second);

}  // namespace hyb
