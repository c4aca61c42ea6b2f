#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/stream.h"
#include "kernels/tensor.h"

namespace hyb::kernels::cuda {

/// Returns rows of bf16 with their columns in this order, which has the column of x of each one on
/// the card: whole eights of columns, in the stream's room for them. Without an order it is x.
Tensor in_order(Stream& stream, const Tensor& x, std::span<const std::int32_t> order);

}  // namespace hyb::kernels::cuda
