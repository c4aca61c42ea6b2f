#include "kernels/ops/attention_step.h"

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"

namespace hyb::kernels {

void attention_step(Queue& queue, RopeKvWrite write, const PagedAttention& read) {
  const Check rules("attention_step", queue.device());
  const std::int64_t spans = rules.spans(write.kv.span_begin, write.qkv.dim(0));
  rules.that(spans == write.qkv.dim(0), "every span has one token", spans);
  rules.that(read.q.data == write.qkv.data, "q is the first columns of qkv", 0);
  write.position_of_row = write.kv.position;
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) {
      check(write, Device::cuda);  // its route calls neither of the two
      check(read, Device::cuda);
      return cuda::attention_step(queue.stream(), write, read);
    }
  }
  rope_kv_write(queue, write);
  paged_attention(queue, read);
}

}  // namespace hyb::kernels
