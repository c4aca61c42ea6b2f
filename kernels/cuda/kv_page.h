#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace hyb::kernels::cuda {

/// Says where the elements of a page lie on the device: kv head after kv head, each with its keys
/// [page_tokens][head_dim], then its values [page_tokens][head_dim]. Plain rows, so that 16 bytes
/// of one are a copy or a matrix operand. In elements. (Not in tables.h, whose device code only
/// nvcc compiles.)
struct KvPage {
  int head_dim, page_tokens;

  __host__ __device__ std::int64_t key(int kv_head, int place) const {
    const std::int64_t keys = static_cast<std::int64_t>(page_tokens) * head_dim;
    return 2 * keys * kv_head + static_cast<std::int64_t>(place) * head_dim;
  }
  /// From a key to its value.
  __host__ __device__ std::int64_t value_offset() const {
    return static_cast<std::int64_t>(page_tokens) * head_dim;
  }
};

}  // namespace hyb::kernels::cuda
