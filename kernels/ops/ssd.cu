#include "kernels/cuda/routes.h"
#include "kernels/ops/ssd_cuda.h"

namespace hyb::kernels::cuda {
namespace {

/// Whether some span is long enough for chunks to pay. The host knows their mean only: a chunk's
/// tile costs about as much as a few tokens one by one.
bool has_long_spans(const Ssd& op) {
  const std::int64_t tokens = op.x.dim(0), spans = op.read_slot.dim(0);
  return tokens >= 4 * spans && tokens >= spans + 31;
}

}  // namespace

void ssd(Stream& stream, const Ssd& op) {
  if (!stream.batch_invariant() && has_long_spans(op) && ssd_chunked_takes(op)) {
    ssd_chunked(stream, op);
  } else {
    ssd_scan(stream, op);
  }
}

}  // namespace hyb::kernels::cuda
