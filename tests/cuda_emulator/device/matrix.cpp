#include "tests/cuda_emulator/device/matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tests/cuda_emulator/device/inexact.h"

namespace emulator {
namespace {

constexpr int rows = 16, columns = 8, depth = 16;

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

const MmaOperands& operands(const LaneSlots& lanes, int lane) {
  return *static_cast<const MmaOperands*>(lanes[static_cast<std::size_t>(lane)].in);
}

/// The sum, where everything below the 24th bit of the largest summand is lost, and the rest of the
/// result as well.
float truncated_sum(float sum, const float* a, const float (*b)[columns], int column) {
  constexpr int summands = 8;
  double all[summands + 1] = {sum};
  double largest = std::fabs(all[0]);
  for (int k = 0; k < summands; ++k) {
    all[k + 1] = static_cast<double>(a[k]) * b[k][column];
    if (std::isnan(all[k + 1])) return static_cast<float>(all[k + 1]);
    largest = std::max(largest, std::fabs(all[k + 1]));
  }
  if (largest == 0 || !std::isfinite(largest)) {
    for (int k = 0; k < summands; ++k) sum += a[k] * b[k][column];
    return sum;
  }
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 23);
  double total = 0;
  for (const double summand : all) total += std::trunc(summand / unit) * unit;
  const auto nearest = static_cast<float>(total);
  return std::fabs(nearest) > std::fabs(total) ? std::nextafter(nearest, 0.0F) : nearest;
}

/// d += a * b, with the accumulators' fragment: lane l has columns 2*(l%4), 2*(l%4)+1 of rows l/4
/// and l/4+8.
void multiply(const LaneSlots& lanes, const float (&a)[rows][depth],
              const float (&b)[depth][columns]) {
  float d[rows][columns];
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = operands(lanes, lane).d[i];
    }
  }
  for (int row = 0; row < rows; ++row) {
    if (is_inexact) {
      for (int column = 0; column < columns; ++column) {
        for (int k = 0; k < depth; k += 8) {
          d[row][column] = truncated_sum(d[row][column], &a[row][k], &b[k], column);
        }
      }
      continue;
    }
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < columns; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto* const out = static_cast<float*>(lanes[static_cast<std::size_t>(lane)].out);
    for (int i = 0; i < 4; ++i) out[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

}  // namespace

/// Register i of a holds columns 2*(l%4)+8*(i/2) and the next of row l/4+8*(i%2); register i of b
/// holds rows 2*(l%4)+8*i and the next of column l/4.
void mma_bf16_action(std::uint32_t, const LaneSlots& lanes) {
  float a[rows][depth], b[depth][columns];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaOperands& in = operands(lanes, lane);
    for (int i = 0; i < 4; ++i) {
      for (int half = 0; half < 2; ++half) {
        a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8 + half] =
            from_bf16(static_cast<std::uint16_t>(in.a[i] >> (16 * half)));
      }
    }
    for (int i = 0; i < 2; ++i) {
      for (int half = 0; half < 2; ++half) {
        b[lane % 4 * 2 + i * 8 + half][lane / 4] =
            from_bf16(static_cast<std::uint16_t>(in.b[i] >> (16 * half)));
      }
    }
  }
  multiply(lanes, a, b);
}

template <bool Transposed>
void ldmatrix_action(std::uint32_t, const LaneSlots& lanes) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t elements[8][8];
    for (int row = 0; row < 8; ++row) {
      const auto lane = static_cast<std::size_t>(matrix * 8 + row);
      std::memcpy(elements[row], *static_cast<const void* const*>(lanes[lane].in), 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int row = lane / 4, column = lane % 4 * 2;
      const std::uint32_t low = Transposed ? elements[column][row] : elements[row][column];
      const std::uint32_t high = Transposed ? elements[column + 1][row] : elements[row][column + 1];
      static_cast<std::uint32_t*>(lanes[static_cast<std::size_t>(lane)].out)[matrix] =
          low | high << 16;
    }
  }
}

template void ldmatrix_action<false>(std::uint32_t, const LaneSlots&);
template void ldmatrix_action<true>(std::uint32_t, const LaneSlots&);

}  // namespace emulator
