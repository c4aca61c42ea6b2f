#pragma once

#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/stream.h"
#include "kernels/ops/attention.h"

namespace hyb::kernels::cuda {

/// The two routes of attention. Which of them an op takes depends on types, head_dim and alignment
/// only.

/// q, y and gate of bf16, pages of bf16 or F8_E4M3, all rows 16-byte aligned; head_dim a multiple
/// of 8, of F8_E4M3 of 16, up to 256, best 64, 128 or 256 itself. Answers over pages of F8_E4M3 are
/// to the bit those over pages of bf16 with the same numbers.
bool fits_attention_matrix(const Attention& op);
void attention_matrix(Stream& stream, const Attention& op);

/// Everything else.
void attention_plain(Stream& stream, const Attention& op);

template <typename T, typename K>
AttentionParams<T, K> attention_params(const Attention& op) {
  constexpr float log2_e = 1.44269504F;
  return {.q = op.q.as<T>(),
          .arena = op.pages_of_layer.as<K>(),
          .y = op.y.as<T>(),
          .span_begin = op.span_begin.as<std::int32_t>(),
          .position = op.position.as<std::int32_t>(),
          .page_begin = op.page_begin.as<std::int32_t>(),
          .pages = op.pages.as<std::int32_t>(),
          .q_stride = op.q.row_stride,
          .y_stride = op.y.row_stride,
          .page_stride = op.pages_of_layer.row_stride,
          .layout = {static_cast<int>(op.head_dim), static_cast<int>(op.page_tokens)},
          .spans = static_cast<int>(op.span_begin.dim(0) - 1),
          .kv_heads = static_cast<int>(op.kv_heads),
          .group = static_cast<int>(op.heads / op.kv_heads),
          .sinks = op.sinks.as<float>(),
          .window = op.window == 0 ? INT32_MAX : static_cast<int>(op.window),
          .scale = op.scale * log2_e,
          .gate = op.gate.as<T>(),
          .gate_stride = op.gate.row_stride};
}

}  // namespace hyb::kernels::cuda
