#include "kernels/linear/panel_product.h"

#include <cstring>

#include "kernels/linear/codes.h"
#include "kernels/linear/gguf_blocks.h"
#include "kernels/linear/gguf_panels.h"
#include "kernels/visit.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {

PanelKernel panel_kernel(Isa isa, DType dtype) {
  const auto of = [&](auto bf16_tile, auto f32_tile, auto f16_tile, auto row) -> PanelKernel {
    if (dtype == DType::bf16) return {bf16_tile, row, 2, 2};
    if (dtype == DType::f16) return {f16_tile, row, 2, 4};
    require(dtype == DType::f32, "panels are bf16, f32 or f16");
    return {f32_tile, row, 4, 4};
  };
  switch (isa) {
    case Isa::avx512:
      return of(panel_tile_bf16_avx512, panel_tile_f32_avx512, panel_tile_f16_avx512,
                panel_row_avx512);
    case Isa::avx2:
      return of(panel_tile_bf16_avx2, panel_tile_f32_avx2, panel_tile_f16_avx2, panel_row_avx2);
    case Isa::plain:
      break;
  }
  return of(panel_tile_bf16_plain, panel_tile_f32_plain, panel_tile_f16_plain, panel_row_plain);
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

namespace {

alignas(64) constexpr ByteLevels q8_table = byte_levels(WeightCode::q8);
alignas(64) constexpr LevelTable q4_table = nibble_levels(WeightCode::q4);
alignas(64) constexpr LevelTable mxfp4_table = nibble_levels(WeightCode::mxfp4);

const void* table_of(WeightCode code, GgufType type) {
  const bool has_type = code == WeightCode::blocks || code == WeightCode::groups;
  if (has_type && gguf_code_bits(type) < 8) return gguf_levels(type).data();
  if (code == WeightCode::q4) return q4_table.data();
  if (code == WeightCode::mxfp4) return mxfp4_table.data();
  return code == WeightCode::fp8 ? &fp8_levels : &q8_table;
}

/// Eight chains of every eighth element, added up in pairs.
float sum_of(const bf16* x, std::int64_t count) {
  std::array<float, 8> lanes = {};
  std::int64_t k = 0;
  for (; k + 8 <= count; k += 8) {
    for (std::size_t i = 0; i < 8; ++i) lanes[i] += to_float(x[static_cast<std::size_t>(k) + i]);
  }
  for (std::size_t i = 0; k < count; ++k, ++i) lanes[i] += to_float(x[k]);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace

RowSums::RowSums(Queue& queue, const std::byte* x, std::int64_t rows, std::int64_t row_bytes,
                 const CodedShape& shape)
    : x_(x),
      row_bytes_(std::max<std::int64_t>(row_bytes, 1)),
      groups_(shape.groups()),
      sums_(static_cast<std::size_t>(rows * shape.groups())) {
  parallel_product(queue, rows, rows * shape.columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * groups_; i < end * groups_; ++i) {
      const std::int64_t g = i % groups_;
      const auto* const row = reinterpret_cast<const bf16*>(x_ + i / groups_ * row_bytes_);
      sums_[static_cast<std::size_t>(i)] = sum_of(row + g * shape.group, columns_of(shape, g));
    }
  });
}

std::vector<std::byte> ordered_rows(Queue& queue, const Weight& weight, DType dtype,
                                    std::int64_t rows,
                                    const std::function<const std::byte*(std::int64_t)>& row,
                                    const std::function<std::int64_t(std::int64_t)>& expert_of) {
  if (weight.order(0).empty()) return {};
  const std::int64_t columns = weight.columns();
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  std::vector<std::byte> all(static_cast<std::size_t>(rows * columns * size));
  parallel_product(queue, rows, rows * columns * size, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::span<const std::int32_t> order = weight.order(expert_of(i));
      const std::byte* const from = row(i);
      std::byte* to = all.data() + i * columns * size;
      for (const std::int32_t k : order) {
        std::memcpy(to, from + k * size, static_cast<std::size_t>(size));
        to += size;
      }
    }
  });
  return all;
}

CodedKernel coded_kernel(Isa isa, WeightCode code, GgufType type) {
  if (code == WeightCode::plain || code == WeightCode::bits12) return {};
  const void* const table = table_of(code, type);
  switch (isa) {
    case Isa::avx512:
      return {read_levels_avx512, coded_tile_avx512, coded_few_avx512, table};
    case Isa::avx2:
      return {read_levels_avx2, coded_tile_avx2, nullptr, table};
    case Isa::plain:
      break;
  }
  return {read_levels_plain, coded_tile_plain, nullptr, table};
}

}  // namespace hyb::kernels
