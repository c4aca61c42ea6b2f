#include "kernels/ops/rope_kv_write.h"

#include <algorithm>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/kv_write.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope.h"

namespace hyb::kernels {
namespace {

void norm_heads(Queue& queue, const RopeKvWrite& op, const Tensor& weight, const Tensor& heads) {
  if (weight.empty()) return;
  rms_norm(queue, {.x = heads,
                   .weight = weight,
                   .y = heads,
                   .eps = op.norm_eps,
                   .one_plus = op.norm_one_plus,
                   .heads = heads.dim(1) / op.head_dim});
}

}  // namespace

/// On the CPU its parts check the numbers in tables; a card's route calls none of them.
void check(const RopeKvWrite& op, Device device) {
  const Check check("rope_kv_write", device);
  check.activations(op.qkv, "qkv");
  check.that(op.heads >= 1, "heads is positive", op.heads);
  check.that(op.kv_heads >= 1, "kv_heads is positive", op.kv_heads);
  check.that(op.head_dim >= 2 && op.head_dim % 2 == 0 && op.head_dim <= rope_kv_write_head_dim_max,
             "head_dim is even and within 2..512", op.head_dim);
  check.that(op.page_tokens >= 2 && op.page_tokens % 2 == 0, "page_tokens is even", op.page_tokens);
  const std::int64_t width = (op.heads + 2 * op.kv_heads) * op.head_dim;
  check.tensor(op.qkv, "qkv", op.qkv.dtype, {op.qkv.dim(0), std::max(width, op.qkv.dim(1))});
  if (!op.q_norm.empty()) check.tensor(op.q_norm, "q_norm", DType::f32, {op.head_dim});
  if (!op.k_norm.empty()) check.tensor(op.k_norm, "k_norm", DType::f32, {op.head_dim});
  check.that(op.rotary_dim >= 0, "rotary_dim is not negative", op.rotary_dim);
  check.that(op.rotary_dim % 2 == 0 && op.rotary_dim <= op.head_dim,
             "rotary_dim is even and within head_dim", op.rotary_dim);
  if (op.rotary_dim != 0) check.table(op.position_of_row, "position_of_row", op.qkv.dim(0));
  check.spans(op.span_begin, op.qkv.dim(0));
  check.keys_and_values(op.pages_of_layer, "pages_of_layer");
  check.tensor(op.pages_of_layer, "pages_of_layer", op.pages_of_layer.dtype,
               {op.pages_of_layer.dim(0), 2 * op.kv_heads * op.page_tokens * op.head_dim});
  check.page_tables(op.span_begin, op.position, op.page_begin, op.pages, op.page_tokens,
                    op.pages_of_layer.dim(0));
}

void rope_kv_write(Queue& queue, const RopeKvWrite& op) {
  check(op, queue.device());
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::rope_kv_write(queue.stream(), op);
  }
  const std::int64_t q_and_k = (op.heads + op.kv_heads) * op.head_dim;
  const std::int64_t kv = op.kv_heads * op.head_dim;
  norm_heads(queue, op, op.q_norm, op.qkv.columns(0, q_and_k - kv));
  norm_heads(queue, op, op.k_norm, op.qkv.columns(q_and_k - kv, kv));
  if (op.rotary_dim != 0) {
    rope(queue, {.x = op.qkv.columns(0, q_and_k),
                 .position_of_row = op.position_of_row,
                 .heads = op.heads + op.kv_heads,
                 .head_dim = op.head_dim,
                 .rotary_dim = op.rotary_dim,
                 .theta = op.theta});
  }
  kv_write(queue, {.k = op.qkv.columns(q_and_k - kv, kv),
                   .v = op.qkv.columns(q_and_k, kv),
                   .pages_of_layer = op.pages_of_layer,
                   .span_begin = op.span_begin,
                   .position = op.position,
                   .page_begin = op.page_begin,
                   .pages = op.pages,
                   .kv_heads = op.kv_heads,
                   .head_dim = op.head_dim,
                   .page_tokens = op.page_tokens});
}

}  // namespace hyb::kernels
