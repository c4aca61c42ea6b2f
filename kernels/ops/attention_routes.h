#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// Some rows of one kv head of one span; row r is query head r % group of the span's token
/// r / group. Vector routes need page_tokens to be 16 times a power of two. T is the type of
/// activations, K that of keys and values.
template <typename T, typename K>
struct AttentionRows {
  const T* q;  ///< the span's first token, first query head of the kv head
  T* y;
  std::int64_t q_stride, y_stride;  ///< from token to token
  const K* pages;                   ///< the kv head's part of page 0
  std::int64_t page_stride;
  const std::int32_t* page_table;
  std::int64_t position;  ///< of the span's first token
  std::int64_t group, head_dim, page_tokens;
  float scale;
  std::int64_t first_row, rows;
  std::int64_t window;  ///< 0: none; windows and sinks are the plain loops' alone
  const float* sinks;   ///< of the kv head's first query head; null: none
  const T* gate;        ///< beside q; null: none
  std::int64_t gate_stride;
};

/// Rows that one call takes at most: whole register tiles, and records that fit on a stack.
constexpr std::int64_t attention_rows_max(std::int64_t head_dim) {
  return head_dim <= 128 ? 30 : head_dim <= 256 ? 12 : 6;
}

/// What is known of a row after some keys, in floats: sums[head_dim], one sum of weights for every
/// lane, the largest score.
constexpr std::int64_t attention_lanes_max = 16;
constexpr std::int64_t attention_record(std::int64_t head_dim) {
  return head_dim + attention_lanes_max + 1;
}

/// One body per ISA level. The plain one has `rows` alone.
template <typename T, typename K>
struct AttentionRoutes {
  /// All keys of the rows, to y.
  void (*rows)(const AttentionRows<T, K>& job);
  /// The keys of one run, to one record per row.
  void (*run)(const AttentionRows<T, K>& job, std::int64_t run, float* records);
  /// Merges the records of all runs, run after run `run_stride` floats apart, into y.
  void (*merge)(const AttentionRows<T, K>& job, float* records, std::int64_t run_stride);
};

namespace avx2 {
template <typename T, typename K>
AttentionRoutes<T, K> attention_routes();
}  // namespace avx2

namespace avx512 {
template <typename T, typename K>
AttentionRoutes<T, K> attention_routes();
}  // namespace avx512

}  // namespace hyb::kernels
