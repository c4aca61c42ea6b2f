// All vector code, compiled for AVX2 with FMA and F16C.
#include "kernels/simd/avx2.h"

#include "kernels/linear/panel_tiles_avx2.h"
#include "kernels/ops/attention_simd.h"
#include "kernels/ops/conv_simd.h"
#include "kernels/ops/delta_rule_simd.h"
#include "kernels/ops/gated_activation_simd.h"
#include "kernels/ops/gated_norm_simd.h"
#include "kernels/ops/pack_snapshot_simd.h"
#include "kernels/ops/rms_norm_simd.h"
#include "kernels/ops/sample_simd.h"
#include "kernels/ops/ssd_simd.h"
#include "kernels/probe_avx2.h"
