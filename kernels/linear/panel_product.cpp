#include "kernels/linear/panel_product.h"

#include "kernels/rule.h"

namespace hyb::kernels {

PanelKernel panel_kernel(Isa isa, DType dtype) {
  rule(dtype == DType::bf16 || dtype == DType::f32, "panels: BF16 or F32", dtype);
  const bool half = dtype == DType::bf16;
  const std::int64_t bytes = half ? 2 : 4;
  switch (isa) {
    case Isa::avx512:
      return {half ? panel_tile_bf16_avx512 : panel_tile_f32_avx512, panel_row_avx512, bytes};
    case Isa::avx2:
      return {half ? panel_tile_bf16_avx2 : panel_tile_f32_avx2, panel_row_avx2, bytes};
    case Isa::plain:
      break;
  }
  return {half ? panel_tile_bf16_plain : panel_tile_f32_plain, panel_row_plain, bytes};
}

}  // namespace hyb::kernels
