#include "kernels/cuda/routes.h"
#include "kernels/ops/delta_rule_cuda.h"

namespace hyb::kernels::cuda {
namespace {

/// Whether some span may be long enough for chunks to pay: a chunk takes about as long as a few
/// tokens one by one. The host knows the sum only.
bool may_have_long_spans(const DeltaRule& op) { return op.x.dim(0) >= op.read_slot.dim(0) + 31; }

}  // namespace

void delta_rule(Stream& stream, const DeltaRule& op) {
  if (!stream.batch_invariant() && may_have_long_spans(op) && delta_rule_chunked_takes(op)) {
    delta_rule_chunked(stream, op);
  } else {
    delta_rule_scan(stream, op);
  }
}

}  // namespace hyb::kernels::cuda
