#pragma once

#include <cstdint>

#include "kernels/ops/kv_pages.h"
#include "kernels/queue.h"

namespace hyb::kernels {

/// Makes the keys and values of a step zeros, as kv_write of zeros does, in less time.
///
/// shapes  as in KvWrite, of `tokens` tokens
/// writes  the places of these tokens, nothing else
/// device  cpu
struct KvClear {
  KvPages kv;
  std::int64_t tokens = 0, kv_heads = 0, head_dim = 0;
};

void kv_clear(Queue& queue, const KvClear& op);

}  // namespace hyb::kernels
