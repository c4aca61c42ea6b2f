#include "kernels/linear/coded_product.h"

#include "kernels/linear/codes.h"

namespace hyb::kernels {
namespace {

alignas(64) constexpr ByteLevels q8_table = byte_levels(WeightCode::q8);
alignas(64) constexpr std::array<std::uint16_t, 32> q4_table = nibble_levels();

const void* table_of(WeightCode code) {
  if (code == WeightCode::q4) return q4_table.data();
  return code == WeightCode::q8 ? &q8_table : &fp8_levels;
}

}  // namespace

CodedKernel coded_kernel(Isa isa, WeightCode code) {
  if (code == WeightCode::plain) return {};
  const void* const table = table_of(code);
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
