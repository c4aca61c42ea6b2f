#include "kernels/simd/byte_levels_avx512.h"

#include "kernels/ops/attention_vector.h"

namespace hyb::kernels::avx512 {

template <typename T, typename K>
AttentionRoutes<T, K> attention_routes() {
  return {attend_all<T, K>, attend_keys_of_run<T, K>, merge_all<T, K>};
}

template AttentionRoutes<float, float> attention_routes();
template AttentionRoutes<float, bf16> attention_routes();
template AttentionRoutes<bf16, float> attention_routes();
template AttentionRoutes<bf16, bf16> attention_routes();
template AttentionRoutes<float, e4m3> attention_routes();
template AttentionRoutes<bf16, e4m3> attention_routes();

}  // namespace hyb::kernels::avx512
