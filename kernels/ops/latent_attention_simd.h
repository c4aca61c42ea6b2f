#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

/// Some heads of one token go through the keys together, in tiles counted from position 0: a row of
/// a page is read from memory once for all of them, first by its dot products, then as values.
namespace hyb::kernels {
namespace latent_attention_simd {
namespace {

constexpr std::int64_t tile_keys = 16, width_max = 1024;

template <int H>
struct Sums {
  alignas(64) float values[H][width_max];
  float weights[H], largest[H];
};

/// scores[h][key] of a tile.
template <int H, typename T, typename K>
void score_tile(const LatentRows<T, K>& job, const K* const* rows, std::int64_t keys,
                float (*scores)[tile_keys]) {
  for (std::int64_t key = 0; key < keys; ++key) {
    Vec dots[H];
    for (int h = 0; h < H; ++h) dots[h] = zeros();
    const auto add = [&](const T* q, std::int64_t stride, const K* row, std::int64_t width) {
      each_vector(width, [&](std::int64_t i, auto part) {
        const Vec c = load(row + i, part);
        for (int h = 0; h < H; ++h) dots[h] = fma(load(q + h * stride + i, part), c, dots[h]);
      });
    };
    add(job.turned, job.turned_stride, rows[key], job.turned_width);
    add(job.latent, job.latent_width, rows[key] + job.turned_width, job.latent_width);
    for (int h = 0; h < H; ++h) scores[h][key] = sum_of(dots[h]) * job.scale;
  }
}

/// Scores become weights; returns what the sums before them shrink by.
inline float weigh(float* scores, std::int64_t keys, float& largest, float& weights) {
  float next = largest;
  for (std::int64_t key = 0; key < keys; ++key) {
    // NaN stays.
    next = scores[key] > next || scores[key] != scores[key] ? scores[key] : next;
  }
  alignas(64) float shrink[lanes];
  store(shrink, exp(broadcast(largest - next)));
  Vec sum = zeros();
  each_vector(keys, [&](std::int64_t i, auto part) {
    const Vec weight = exp(load(scores + i, part) - broadcast(next));
    store(scores + i, weight, part);
    sum = sum + load(scores + i, part);
  });
  weights = weights * shrink[0] + sum_of(sum);
  largest = next;
  return shrink[0];
}

template <int H, typename T, typename K>
void attend(const LatentRows<T, K>& job) {
  Sums<H> sums;
  alignas(64) float scores[H][tile_keys];
  for (int h = 0; h < H; ++h) {
    sums.weights[h] = 0.0F;
    sums.largest[h] = -__builtin_inff();
    each_vector(job.latent_width,
                [&](std::int64_t i, auto part) { store(sums.values[h] + i, zeros(), part); });
  }
  for (std::int64_t first = 0; first <= job.position; first += tile_keys) {
    const std::int64_t left = job.position + 1 - first;
    const std::int64_t keys = left < tile_keys ? left : tile_keys;
    const K* rows[tile_keys];
    for (std::int64_t key = 0; key < keys; ++key) rows[key] = job.row_at(first + key);
    score_tile<H>(job, rows, keys, scores);
    Vec shrink[H];
    for (int h = 0; h < H; ++h) {
      shrink[h] = broadcast(weigh(scores[h], keys, sums.largest[h], sums.weights[h]));
    }
    each_vector(job.latent_width, [&](std::int64_t i, auto part) {
      Vec values[H];
      for (int h = 0; h < H; ++h) values[h] = load(sums.values[h] + i, part) * shrink[h];
      for (std::int64_t key = 0; key < keys; ++key) {
        const Vec c = load(rows[key] + job.turned_width + i, part);
        for (int h = 0; h < H; ++h) values[h] = fma(broadcast(scores[h][key]), c, values[h]);
      }
      for (int h = 0; h < H; ++h) store(sums.values[h] + i, values[h], part);
    });
  }
  for (int h = 0; h < H; ++h) {
    const Vec whole = broadcast(1.0F / sums.weights[h] * job.factors[h]);
    T* const y = job.y + h * job.latent_width;
    each_vector(job.latent_width, [&](std::int64_t i, auto part) {
      store(y + i, load(sums.values[h] + i, part) * whole, part);
    });
  }
}

template <typename T, typename K>
void run(LatentRows<T, K> job) {
  while (job.heads > 0) {
    const std::int64_t taken = job.heads >= latent_heads_max ? latent_heads_max : 1;
    taken == 1 ? attend<1>(job) : attend<latent_heads_max>(job);
    job.turned += taken * job.turned_stride;
    job.latent += taken * job.latent_width;
    job.y += taken * job.latent_width;
    job.factors += taken;
    job.heads -= taken;
  }
}

}  // namespace
}  // namespace latent_attention_simd

template <typename T, typename K>
struct VectorRoute<vector_isa, LatentRows<T, K>> {
  static void run(const LatentRows<T, K>& job) { latent_attention_simd::run(job); }
};
template struct VectorRoute<vector_isa, LatentRows<float, float>>;
template struct VectorRoute<vector_isa, LatentRows<float, bf16>>;
template struct VectorRoute<vector_isa, LatentRows<bf16, float>>;
template struct VectorRoute<vector_isa, LatentRows<bf16, bf16>>;

}  // namespace hyb::kernels
