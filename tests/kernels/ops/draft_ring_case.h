#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/draft_ring.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

/// Rows and rings of a call of extend_rows or keep_rows.
struct RingCase {
  std::int64_t columns, ring_columns, ring_column;
  Strides strides = {};
};

inline constexpr std::int64_t ring_units = 3, ring_entries = 5, ring_x_rows = 6;

/// Whole vectors, odd columns, and columns within a wider ring.
inline const std::vector<RingCase>& ring_cases() {
  static const std::vector<RingCase> cases = {
      {1040, 1040, 0}, {64, 96, 32, {8, 8}}, {33, 70, 7, {3, 1}}, {8, 8, 0, {1, 0}}, {1, 3, 2}};
  return cases;
}

/// Where rows come from: the step's, the first and last entries of rings, and nowhere.
inline std::vector<std::int32_t> extended_from() {
  return {0, -1, -5, 5, no_row, -6, 2, -15, 2, 3};
}
/// Where rows are kept, or not: one for each of the rows.
inline std::vector<std::int32_t> kept_to() { return {4, -1, 0, 14, -1, 7}; }

struct RingInputs {
  RingInputs(const RingCase& c, DType dtype)
      : x(random_tensor(dtype, {ring_x_rows, c.columns}, 1, 1.0F, c.strides)),
        gate(random_tensor(dtype, {ring_x_rows, c.columns}, 2, 1.0F, c.strides)),
        ring(random_tensor(dtype, {ring_units, ring_entries, c.ring_columns}, 3, 1.0F, c.strides)),
        y(dtype, {static_cast<std::int64_t>(extended_from().size()), c.columns}, c.strides) {}

  TestTensor x, gate, ring, y;
};

}  // namespace hyb::kernels::testing
