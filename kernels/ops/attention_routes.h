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

namespace avx2 {
/// All keys of the rows, to y.
void attend_rows(const AttentionRows<float, float>& job);
void attend_rows(const AttentionRows<float, bf16>& job);
void attend_rows(const AttentionRows<bf16, float>& job);
void attend_rows(const AttentionRows<bf16, bf16>& job);
/// The keys of one run, to one record per row.
void attend_run(const AttentionRows<float, float>& job, std::int64_t run, float* records);
void attend_run(const AttentionRows<float, bf16>& job, std::int64_t run, float* records);
void attend_run(const AttentionRows<bf16, float>& job, std::int64_t run, float* records);
void attend_run(const AttentionRows<bf16, bf16>& job, std::int64_t run, float* records);
/// Merges the records of all runs, run after run `run_stride` floats apart, into y.
void merge_runs(const AttentionRows<float, float>& job, float* records, std::int64_t run_stride);
void merge_runs(const AttentionRows<float, bf16>& job, float* records, std::int64_t run_stride);
void merge_runs(const AttentionRows<bf16, float>& job, float* records, std::int64_t run_stride);
void merge_runs(const AttentionRows<bf16, bf16>& job, float* records, std::int64_t run_stride);
}  // namespace avx2

namespace avx512 {
void attend_rows(const AttentionRows<float, float>& job);
void attend_rows(const AttentionRows<float, bf16>& job);
void attend_rows(const AttentionRows<bf16, float>& job);
void attend_rows(const AttentionRows<bf16, bf16>& job);
void attend_run(const AttentionRows<float, float>& job, std::int64_t run, float* records);
void attend_run(const AttentionRows<float, bf16>& job, std::int64_t run, float* records);
void attend_run(const AttentionRows<bf16, float>& job, std::int64_t run, float* records);
void attend_run(const AttentionRows<bf16, bf16>& job, std::int64_t run, float* records);
void merge_runs(const AttentionRows<float, float>& job, float* records, std::int64_t run_stride);
void merge_runs(const AttentionRows<float, bf16>& job, float* records, std::int64_t run_stride);
void merge_runs(const AttentionRows<bf16, float>& job, float* records, std::int64_t run_stride);
void merge_runs(const AttentionRows<bf16, bf16>& job, float* records, std::int64_t run_stride);
}  // namespace avx512

}  // namespace hyb::kernels
