#pragma once

#include "kernels/ops/attention_products.h"
#include "kernels/ops/attention_routes.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t run_keys = 512;
constexpr float minus_infinity = -__builtin_inff();

template <typename T>
struct TileScratch {
  alignas(64) Scores scores;
  alignas(64) Weights<T> weights;
  const T* q[tile_rows_max];
};

template <typename T>
std::int64_t position_of(const AttentionRows<T>& job, std::int64_t row) {
  return job.position + (job.first_row + row) / job.group;
}

/// The first row whose position is at least `position`.
template <typename T>
std::int64_t first_row_at(const AttentionRows<T>& job, std::int64_t position) {
  const std::int64_t row = (position - job.position) * job.group - job.first_row;
  return row < 0 ? 0 : row > job.rows ? job.rows : row;
}

/// Segments beyond the last written key point to the first one: their scores are masked.
template <typename T>
void find_tile(const AttentionRows<T>& job, std::int64_t first_key, std::int64_t last_key,
               TilePages<T>& tile) {
  constexpr int size = unit_size<T>;
  tile.key_stride = job.page_tokens * size;
  tile.value_stride = job.head_dim * size;
  for (int i = 0; i < tile_segments; ++i) {
    std::int64_t key = first_key + i * segment_keys;
    if (key > last_key) key = first_key;
    const std::int64_t place = key % job.page_tokens;
    const T* const page = job.pages + job.page_table[key / job.page_tokens] * job.page_stride;
    tile.keys[i] = page + place * size;
    tile.values[i] = page + job.head_dim * job.page_tokens + place * job.head_dim;
  }
}

/// Scores to weights exp(score - largest) of one row, whose record shrinks where the largest grew.
/// Weights are summed as they are stored, so that they add up to one after the last division.
template <typename T>
void weigh_row(std::int64_t keys, float* scores, T* weights, float* record, std::int64_t head_dim) {
  Vec largest = broadcast(minus_infinity);
  for (int v = 0; v < tile_vectors; ++v) {
    if (keys < (v + 1) * lanes) {
      for (std::int64_t i = keys > v * lanes ? keys : v * lanes; i < (v + 1) * lanes; ++i) {
        scores[i] = minus_infinity;
      }
    }
    largest = larger(largest, load(scores + v * lanes));
  }
  float& old_largest = record[head_dim];
  const float tile_largest = largest_of(largest);
  const float next = tile_largest > old_largest ? tile_largest : old_largest;
  Vec sum = zeros();
  for (int v = 0; v < tile_vectors; ++v) {
    store(weights + v * lanes, exp(load(scores + v * lanes) - broadcast(next)));
    sum = sum + load(weights + v * lanes);
  }
  float& sum_of_weights = record[head_dim + 1];
  if (next != old_largest) {
    const Vec shrink = exp(broadcast(old_largest - next));
    each_vector(head_dim, [&](std::int64_t i, auto part) {
      store(record + i, load(record + i, part) * shrink, part);
    });
    sum_of_weights *= first_of(shrink);
    old_largest = next;
  }
  sum_of_weights += sum_of(sum);
}

template <typename T>
void attend_tile(const AttentionRows<T>& job, std::int64_t first_key, TileScratch<T>& scratch,
                 float* records) {
  const std::int64_t record = attention_record(job.head_dim);
  const std::int64_t begin = first_row_at(job, first_key);
  const std::int64_t whole = first_row_at(job, first_key + tile_keys - 1);
  TilePages<T> tile;
  find_tile(job, first_key, position_of(job, job.rows - 1), tile);
  score_rows(scratch.q, tile, job.head_dim, job.scale, begin, job.rows, scratch.scores);
  for (std::int64_t row = begin; row < job.rows; ++row) {
    weigh_row(position_of(job, row) - first_key + 1, scratch.scores[row], scratch.weights[row],
              records + row * record, job.head_dim);
  }
  // Rows that end within the tile go one by one: what lies behind them is not theirs to multiply,
  // not even by zero.
  for (std::int64_t row = begin; row < whole; ++row) {
    const int keys = static_cast<int>(position_of(job, row) - first_key + 1);
    add_rows(scratch.weights, tile, job.head_dim, keys, row, row + 1, records, record);
  }
  add_rows(scratch.weights, tile, job.head_dim, tile_keys, whole, job.rows, records, record);
}

/// The keys of one run; rows that end before it stay empty.
template <typename T>
void attend_keys_of_run(const AttentionRows<T>& job, std::int64_t run, float* records) {
  TileScratch<T> scratch;
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const std::int64_t at = job.first_row + row;
    scratch.q[row] = job.q + at / job.group * job.q_stride + at % job.group * job.head_dim;
    float* const record = records + row * attention_record(job.head_dim);
    each_vector(job.head_dim, [&](std::int64_t i, auto part) { store(record + i, zeros(), part); });
    record[job.head_dim] = minus_infinity;
    record[job.head_dim + 1] = 0.0F;
  }
  const std::int64_t last = position_of(job, job.rows - 1), end = (run + 1) * run_keys;
  for (std::int64_t key = run * run_keys; key < end && key <= last; key += tile_keys) {
    attend_tile(job, key, scratch, records);
  }
}

void merge(float* total, const float* part, std::int64_t head_dim) {
  const float largest = part[head_dim] > total[head_dim] ? part[head_dim] : total[head_dim];
  const Vec keep = exp(broadcast(total[head_dim] - largest));
  const Vec add = exp(broadcast(part[head_dim] - largest));
  each_vector(head_dim, [&](std::int64_t i, auto lanes_used) {
    const Vec sums = load(total + i, lanes_used) * keep;
    store(total + i, fma(load(part + i, lanes_used), add, sums), lanes_used);
  });
  total[head_dim] = largest;
  total[head_dim + 1] = total[head_dim + 1] * first_of(keep) + part[head_dim + 1] * first_of(add);
}

template <typename T>
void merge_rows(const AttentionRows<T>& job, std::int64_t run, float* total, const float* part) {
  const std::int64_t record = attention_record(job.head_dim);
  for (std::int64_t row = first_row_at(job, run * run_keys); row < job.rows; ++row) {
    merge(total + row * record, part + row * record, job.head_dim);
  }
}

template <typename T>
void finish_rows(const AttentionRows<T>& job, const float* records) {
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const std::int64_t at = job.first_row + row;
    T* const y = job.y + at / job.group * job.y_stride + at % job.group * job.head_dim;
    const float* const sums = records + row * attention_record(job.head_dim);
    const Vec weights = broadcast(sums[job.head_dim + 1]);
    each_vector(job.head_dim, [&](std::int64_t i, auto part) {
      store(y + i, load(sums + i, part) / weights, part);
    });
  }
}

template <typename T>
std::int64_t runs_of(const AttentionRows<T>& job) {
  return position_of(job, job.rows - 1) / run_keys + 1;
}

template <typename T>
void attend_all(const AttentionRows<T>& job) {
  constexpr std::int64_t floats = 4096 + 2 * tile_rows_max;
  alignas(64) float total[floats], part[floats];
  attend_keys_of_run(job, 0, total);
  for (std::int64_t run = 1; run < runs_of(job); ++run) {
    attend_keys_of_run(job, run, part);
    merge_rows(job, run, total, part);
  }
  finish_rows(job, total);
}

template <typename T>
void merge_all(const AttentionRows<T>& job, float* records, std::int64_t run_stride) {
  for (std::int64_t run = 1; run < runs_of(job); ++run) {
    merge_rows(job, run, records, records + run * run_stride);
  }
  finish_rows(job, records);
}

}  // namespace
}  // namespace hyb::kernels
