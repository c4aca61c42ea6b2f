#include "kernels/simd/avx512.h"

#include "kernels/ops/conv_channels_vector.h"

namespace hyb::kernels::avx512 {

void convolve_channels(const ConvChannels<float>& job) { convolve(job); }
void convolve_channels(const ConvChannels<bf16>& job) { convolve(job); }

}  // namespace hyb::kernels::avx512
