#include "kernels/device.h"

namespace hyb::kernels {

Isa best_isa() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
  if (avx2 && avx512) return Isa::avx512;
  return avx2 ? Isa::avx2 : Isa::plain;
}

}  // namespace hyb::kernels
