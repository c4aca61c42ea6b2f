#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// One thread's part of an Ssd: of every span, its share of the groups of state rows. T is the type
/// of activations, S of the state.
template <typename T, typename S>
struct SsdShare {
  const T* x;
  const T* dt;
  const float* a_log;
  const float* d;
  const float* dt_bias;
  S* state;
  T* y;
  const std::int32_t* span_begin;
  const std::int32_t* read_slot;
  const std::int32_t* write_slot;
  std::int64_t spans, x_stride, dt_stride, y_stride, slot_stride;
  std::int64_t heads, rows, columns, groups;
  float dt_min, dt_max;
  int thread, threads;
};

namespace avx2 {
void ssd_share(const SsdShare<float, float>& job);
void ssd_share(const SsdShare<float, bf16>& job);
void ssd_share(const SsdShare<bf16, float>& job);
void ssd_share(const SsdShare<bf16, bf16>& job);
}  // namespace avx2

namespace avx512 {
void ssd_share(const SsdShare<float, float>& job);
void ssd_share(const SsdShare<float, bf16>& job);
void ssd_share(const SsdShare<bf16, float>& job);
void ssd_share(const SsdShare<bf16, bf16>& job);
}  // namespace avx512

}  // namespace hyb::kernels
