#include "tests/cuda_emulator/device/matrix.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace emulator {
namespace {

constexpr int rows = 16, columns = 8;

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  float value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(1024.0F + mantissa, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

const MmaOperands& operands(const LaneSlots& lanes, int lane) {
  return *static_cast<const MmaOperands*>(lanes[static_cast<std::size_t>(lane)].in);
}

/// d += a * b, with the accumulators' fragment: lane l has columns 2*(l%4), 2*(l%4)+1 of rows l/4
/// and l/4+8.
template <int K>
void multiply(const LaneSlots& lanes, const float (&a)[rows][K], const float (&b)[K][columns]) {
  float d[rows][columns];
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = operands(lanes, lane).d[i];
    }
  }
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < K; ++k) {
      for (int column = 0; column < columns; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto* const out = static_cast<float*>(lanes[static_cast<std::size_t>(lane)].out);
    for (int i = 0; i < 4; ++i) out[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

/// 16-bit elements: register i of a holds columns 2*(l%4)+8*(i/2) and the next of row l/4+8*(i%2);
/// register i of b holds rows 2*(l%4)+8*i and the next of column l/4.
template <float (*Convert)(std::uint16_t)>
void multiply_halves(const LaneSlots& lanes) {
  float a[rows][16], b[16][columns];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaOperands& in = operands(lanes, lane);
    for (int i = 0; i < 4; ++i) {
      for (int half = 0; half < 2; ++half) {
        a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8 + half] =
            Convert(static_cast<std::uint16_t>(in.a[i] >> (16 * half)));
      }
    }
    for (int i = 0; i < 2; ++i) {
      for (int half = 0; half < 2; ++half) {
        b[lane % 4 * 2 + i * 8 + half][lane / 4] =
            Convert(static_cast<std::uint16_t>(in.b[i] >> (16 * half)));
      }
    }
  }
  multiply(lanes, a, b);
}

float from_tf32(std::uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000U); }

}  // namespace

void mma_bf16_action(std::uint32_t, const LaneSlots& lanes) { multiply_halves<from_bf16>(lanes); }
void mma_f16_action(std::uint32_t, const LaneSlots& lanes) { multiply_halves<from_f16>(lanes); }

void mma_tf32_action(std::uint32_t, const LaneSlots& lanes) {
  float a[rows][8], b[8][columns];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaOperands& in = operands(lanes, lane);
    for (int i = 0; i < 4; ++i) {
      a[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4] = from_tf32(in.a[i]);
    }
    for (int i = 0; i < 2; ++i) b[lane % 4 + i * 4][lane / 4] = from_tf32(in.b[i]);
  }
  multiply(lanes, a, b);
}

template <int Matrices, bool Transposed>
void ldmatrix_action(std::uint32_t, const LaneSlots& lanes) {
  for (int matrix = 0; matrix < Matrices; ++matrix) {
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

template void ldmatrix_action<2, false>(std::uint32_t, const LaneSlots&);
template void ldmatrix_action<2, true>(std::uint32_t, const LaneSlots&);
template void ldmatrix_action<4, false>(std::uint32_t, const LaneSlots&);
template void ldmatrix_action<4, true>(std::uint32_t, const LaneSlots&);

}  // namespace emulator
