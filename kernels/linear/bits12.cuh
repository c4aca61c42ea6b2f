#pragma once

#include <cstdint>

#include "kernels/cuda/ptx.h"
#include "kernels/linear/bits12_rows.h"

/// Weights of bf16 in 12 bits (Bits12RowsShape) on their way to registers. Included by .cu files
/// only.
namespace hyb::kernels::cuda {

/// Eight weights of a row whose base is in both halves of `base`, where bf16 has its exponent.
__device__ __forceinline__ uint4 widen_bits12(uint2 rest, std::uint32_t codes, std::uint32_t base) {
  const std::uint32_t high = codes >> 5;
  const std::uint32_t exponents[4] = {
      ((codes & 0x000f000fU) << 7) + base, ((codes & 0x00f000f0U) << 3) + base,
      ((high & 0x00780078U) << 4) + base, (high & 0x07800780U) + base};
  const auto pair = [&](std::uint32_t bytes, std::uint32_t twice, std::uint32_t exponent) {
    return (permute_bytes(bytes, 0, twice) & 0x807f807fU) | exponent;
  };
  return {pair(rest.x, 0x1100, exponents[0]), pair(rest.x, 0x3322, exponents[1]),
          pair(rest.y, 0x1100, exponents[2]), pair(rest.y, 0x3322, exponents[3])};
}

/// Element `i` of eight becomes `bits`.
__device__ __forceinline__ void replace(uint4& eight, int i, std::uint32_t bits) {
  const std::uint32_t selector = i % 2 == 0 ? 0x3254U : 0x5410U;
  if (i / 2 == 0) eight.x = permute_bytes(eight.x, bits, selector);
  if (i / 2 == 1) eight.y = permute_bytes(eight.y, bits, selector);
  if (i / 2 == 2) eight.z = permute_bytes(eight.z, bits, selector);
  if (i / 2 == 3) eight.w = permute_bytes(eight.w, bits, selector);
}

/// Holds what a lane needs of `Count` rows besides their halves. It takes eights of them in
/// ascending columns, and in each meets the patches that are left below its end: with none there,
/// one comparison for all rows.
template <int Count>
class Bits12LaneRows {
 public:
  Bits12LaneRows() = default;

  __device__ __forceinline__ void set(int i, uint2 header) {
    base_[i] = (header.x & 0xffffU) * 0x00800080U;
    column_[i] = header.x >> 16;
    patch_[i] = header.y;
  }
  /// A row that is not there.
  __device__ __forceinline__ void clear(int i) {
    base_[i] = 0;
    column_[i] = Bits12RowHeader::no_column;
    patch_[i] = 0;
  }
  /// After all rows are set; `patches` is the list of the whole weight.
  __device__ __forceinline__ void start(const std::uint32_t* patches) {
    patches_ = patches;
    find_next();
  }

  /// Eight weights of row i; then their patches, of all rows together.
  __device__ __forceinline__ uint4 widen(int i, uint2 rest, std::uint32_t codes) const {
    return widen_bits12(rest, codes, base_[i]);
  }
  /// `eights` are those from column `first` on of all rows.
  __device__ __forceinline__ void patch(int first, uint4 (&eights)[Count]) {
    if (next_ >= static_cast<std::uint32_t>(first) + 8) return;
#pragma unroll
    for (int i = 0; i < Count; ++i) {
#pragma unroll 1
      while (column_[i] < static_cast<std::uint32_t>(first) + 8) {
        const std::uint32_t bits = patches_[patch_[i]] & 0xffffU;
        const int at = static_cast<int>(column_[i]) - first;
        if (at >= 0) replace(eights[i], at, bits);
        column_[i] = patches_[++patch_[i]] >> 16;
      }
    }
    find_next();
  }

 private:
  __device__ __forceinline__ void find_next() {
    next_ = column_[0];
#pragma unroll
    for (int i = 1; i < Count; ++i) next_ = column_[i] < next_ ? column_[i] : next_;
  }

  std::uint32_t base_[Count], column_[Count], next_;  ///< the next patch's column; of all rows
  std::uint32_t patch_[Count];                        ///< in the list
  const std::uint32_t* patches_;
};

}  // namespace hyb::kernels::cuda
