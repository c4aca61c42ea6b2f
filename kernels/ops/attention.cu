#include "kernels/cuda/attention_routes.h"
#include "kernels/cuda/routes.h"

namespace hyb::kernels::cuda {

void attention(Stream& stream, const Attention& op) {
  require(op.scale > 0.0F, "attention: scale is positive on the device");
  require(op.head_dim <= attention_head_dim_max, "attention: head_dim is at most 512");
  if (op.q.dim(0) == 0 || op.span_begin.dim(0) == 1) return;
  if (fits_attention_matrix(op)) return attention_matrix(stream, op);
  attention_plain(stream, op);
}

}  // namespace hyb::kernels::cuda
