#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/shift_rows.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

struct ShiftCase {
  std::int64_t columns;
  Strides strides = {};
};

/// Whole vectors, odd columns, rows that lie apart.
inline const std::vector<ShiftCase>& shift_cases() {
  static const std::vector<ShiftCase> cases = {{1040}, {64, {8, 8}}, {33, {3, 1}}, {1}};
  return cases;
}

inline constexpr std::int64_t shift_slots = 7;

/// A new sequence, one that goes on in its slot, a chain of three, one that leaves nothing, and one
/// token of a sequence of its own.
inline std::vector<std::int32_t> shift_begin() { return {0, 3, 7, 9, 10, 12, 15, 16}; }
inline std::vector<std::int32_t> shift_read() { return {-1, 1, 6, 3, 4, 6, 2}; }
inline std::vector<std::int32_t> shift_write() { return {0, 1, 3, 4, 5, -1, 2}; }

struct ShiftInputs {
  ShiftInputs(const ShiftCase& c, DType dtype)
      : x(random_tensor(dtype, {shift_begin().back(), c.columns}, 1, 1.0F, c.strides)),
        kept(random_tensor(dtype, {shift_slots, c.columns}, 2, 1.0F, c.strides)),
        y(dtype, {shift_begin().back(), c.columns}, c.strides) {}

  TestTensor x, kept, y;
};

}  // namespace hyb::kernels::testing
