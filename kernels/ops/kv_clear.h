#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Makes the keys and values of a step zeros, as kv_write of zeros does, in less time.
///
/// shapes  tables and pages_of_layer as in KvWrite, of `tokens` tokens
/// types   as there
/// writes  the places of these tokens, nothing else
/// device  cpu
struct KvClear {
  Tensor pages_of_layer, span_begin, position, page_begin, pages;
  std::int64_t tokens = 0, kv_heads = 0, head_dim = 0, page_tokens = 16;
};

void kv_clear(Queue& queue, const KvClear& op);

}  // namespace hyb::kernels
