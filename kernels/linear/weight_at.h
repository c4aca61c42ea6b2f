#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/bf16.h"
#include "kernels/cuda/ptx.h"
#include "kernels/half.h"

namespace hyb::kernels::cuda {

/// Element i of a weight in rows of any type.
__device__ __forceinline__ float weight_at(const void* weight, DType type, std::int64_t i) {
  if (type == DType::f32) return static_cast<const float*>(weight)[i];
  if (type == DType::bf16) return to_float(static_cast<const bf16*>(weight)[i]);
  return half_to_float(static_cast<const std::uint16_t*>(weight)[i]);
}

}  // namespace hyb::kernels::cuda
