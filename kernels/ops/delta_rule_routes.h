#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// One thread's part of a DeltaRule: of every span, its share of the vectors of state columns. T is
/// the type of activations, S of the state.
template <typename T, typename S>
struct DeltaRuleShare {
  const T* x;
  const T* b;
  const T* a;
  const float* a_log;
  const float* dt_bias;
  S* state;
  T* y;
  const std::int32_t* span_begin;
  const std::int32_t* read_slot;
  const std::int32_t* write_slot;
  std::int64_t spans, x_stride, b_stride, a_stride, y_stride, slot_stride;
  std::int64_t key_heads, value_heads, rows, columns;  ///< Dk rows of Dv columns
  float q_scale;                                       ///< Dk^-0.5
  float eps;                                           ///< beside the squares of a q or k
  int thread, threads;

  std::int64_t key_head_of(std::int64_t head) const { return head / (value_heads / key_heads); }
  const T* q_of(std::int64_t token, std::int64_t key_head) const {
    return x + token * x_stride + key_head * rows;
  }
  const T* k_of(std::int64_t token, std::int64_t key_head) const {
    return q_of(token, key_heads + key_head);
  }
  const T* v_of(std::int64_t token, std::int64_t head) const {
    return q_of(token, 2 * key_heads) + head * columns;
  }
};

namespace avx2 {
void delta_rule_share(const DeltaRuleShare<float, float>& job);
void delta_rule_share(const DeltaRuleShare<float, bf16>& job);
void delta_rule_share(const DeltaRuleShare<bf16, float>& job);
void delta_rule_share(const DeltaRuleShare<bf16, bf16>& job);
}  // namespace avx2

namespace avx512 {
void delta_rule_share(const DeltaRuleShare<float, float>& job);
void delta_rule_share(const DeltaRuleShare<float, bf16>& job);
void delta_rule_share(const DeltaRuleShare<bf16, float>& job);
void delta_rule_share(const DeltaRuleShare<bf16, bf16>& job);
}  // namespace avx512

}  // namespace hyb::kernels
