#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// One thread's part of an Ssd: of every span, its share of the groups of state rows.
template <typename T>
struct SsdShare {
  const T* x;
  const T* dt;
  const float* a_log;
  const float* d;
  const float* dt_bias;
  float* state;
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
void ssd_share(const SsdShare<float>& job);
void ssd_share(const SsdShare<bf16>& job);
}  // namespace avx2

namespace avx512 {
void ssd_share(const SsdShare<float>& job);
void ssd_share(const SsdShare<bf16>& job);
}  // namespace avx512

}  // namespace hyb::kernels
