#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// Where things lie in the panels of WeightFormat::panels. Seen as 32-bit words both types are
/// alike: a word is one f32, or two bf16 of neighbouring k, and a panel is [words][64].
struct PanelShape {
  std::int64_t panels;  ///< per expert
  std::int64_t words;   ///< per output row

  std::int64_t panel_bytes() const { return words * Weight::panel_rows * 4; }
  std::int64_t expert_bytes() const { return panels * panel_bytes(); }
};

inline PanelShape panel_shape(DType dtype, std::int64_t rows, std::int64_t columns) {
  const std::int64_t panels = (rows + Weight::panel_rows - 1) / Weight::panel_rows;
  return {panels, dtype == DType::bf16 ? (columns + 1) / 2 : columns};
}

/// Writes all panels of a source to `out`, which holds experts * expert_bytes().
void pack_panels(Queue& queue, const WeightSource& source, DType dtype, std::byte* out);

}  // namespace hyb::kernels
