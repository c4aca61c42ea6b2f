#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/dtype.h"
#include "kernels/weight_code.h"

namespace hyb::models {

/// How weights are stored in memory.
struct LoadOptions {
  DType activation = DType::bf16;  ///< bf16 or f32: what weights are packed for
  /// Of linear weights and experts; only with bf16. The head becomes q8, and so does the embedding
  /// where it is the head; routers, their like and an embedding for itself stay plain.
  kernels::Quantize quantize = kernels::Quantize::none;
  /// So many of the plan's parameters are published as F8_E4M3 (models/weight_check.h). Sizes are
  /// estimated with it; loading goes by the files.
  std::int64_t fp8_parameters = 0;
};

constexpr std::string_view name_of(kernels::Quantize quantize) {
  constexpr std::string_view names[] = {"none", "q8", "q4"};
  return names[static_cast<std::size_t>(quantize)];
}

/// What the head is packed to.
constexpr kernels::Quantize head_quantize(const LoadOptions& options) {
  return options.quantize == kernels::Quantize::none ? kernels::Quantize::none
                                                     : kernels::Quantize::q8;
}

}  // namespace hyb::models
