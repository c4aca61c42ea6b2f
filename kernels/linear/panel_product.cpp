#include "kernels/linear/panel_product.h"

#include "kernels/published.h"
#include "kernels/visit.h"

namespace hyb::kernels {

PanelKernel panel_kernel(Isa isa, DType dtype) {
  require(dtype == DType::bf16 || dtype == DType::f32, "panels are bf16 or f32");
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

void WeightProduct::published_sums(std::int64_t expert, std::int64_t first, std::int64_t count,
                                   const void* row, float* sums) const {
  const std::byte* const matrix = weight_.expert(expert);
  const std::int64_t columns = weight_.columns();
  visit_float(x_dtype_, [&]<typename X>(Tag<X>) {
    const X* const x = static_cast<const X*>(row);
    for (std::int64_t n = 0; n < count; ++n) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::int64_t i = (first + n) * columns + k;
        sum += to_float(x[k]) * published_value(matrix, weight_.dtype(), i);
      }
      sums[n] = sum;
    }
  });
}

}  // namespace hyb::kernels
