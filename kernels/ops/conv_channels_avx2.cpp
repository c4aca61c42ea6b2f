#include "kernels/simd/avx2.h"

#include "kernels/ops/conv_channels_vector.h"

namespace hyb::kernels::avx2 {

void convolve_channels(const ConvChannels<float>& job) { convolve(job); }
void convolve_channels(const ConvChannels<bf16>& job) { convolve(job); }

}  // namespace hyb::kernels::avx2
