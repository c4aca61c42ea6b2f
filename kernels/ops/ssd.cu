#include "kernels/cuda/routes.h"
#include "kernels/ops/ssd_cuda.h"

namespace hyb::kernels::cuda {

void ssd(Stream& stream, const Ssd& op) { ssd_scan(stream, op); }

}  // namespace hyb::kernels::cuda
