#include "kernels/cuda/routes.h"
#include "kernels/ops/delta_rule_cuda.h"

namespace hyb::kernels::cuda {
namespace {

/// Whether some span is long enough for chunks to pay. The host knows their mean only: a chunk
/// takes about as long as a few tokens one by one.
bool has_long_spans(const DeltaRule& op) {
  const std::int64_t tokens = op.x.dim(0), spans = op.read_slot.dim(0);
  return tokens >= 4 * spans && tokens >= spans + 31;
}

}  // namespace

void delta_rule(Stream& stream, const DeltaRule& op) {
  if (!stream.batch_invariant() && has_long_spans(op) && delta_rule_chunked_takes(op)) {
    delta_rule_chunked(stream, op);
  } else {
    delta_rule_scan(stream, op);
  }
}

}  // namespace hyb::kernels::cuda
