#pragma once

#include "kernels/linear/codes.h"
#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

/// The two small matrix products of attention over one tile of keys, as register tiles of R rows by
/// some vectors. Every element is summed over units in order, whatever R is.
namespace hyb::kernels {
namespace {

constexpr int segment_keys = 16;  ///< neighbouring keys that are in one page
constexpr int tile_vectors = 4;
constexpr int tile_keys = tile_vectors * lanes;
constexpr int tile_segments = tile_keys / segment_keys;
constexpr int rows_at_once = registers == 32 ? 6 : 2;
constexpr std::int64_t tile_rows_max = 32;

template <typename T>
constexpr int unit_size = sizeof(T) == 4 ? 1 : 2;

/// Says where a tile's keys and values start, segment by segment; in units of T (unit_size<T>).
template <typename T>
struct TilePages {
  const T* keys[tile_segments];
  const T* values[tile_segments];
  std::int64_t key_stride;    ///< from unit to unit of dimensions
  std::int64_t value_stride;  ///< from unit to unit of positions
};

template <typename T>
using Weights = T[tile_rows_max][tile_keys];
using Scores = float[tile_rows_max][tile_keys];

/// scores[r] = scale * q[r] . key, for `R` rows and all keys of the tile. Prefetches the keys of
/// `next`, which may be null. Here and below g++ 12 keeps sums in memory between loops that it does
/// not unroll.
template <int R, typename T>
void score(const T* const* q, const TilePages<T>& tile, const TilePages<T>* next,
           std::int64_t head_dim, float scale, float (*scores)[tile_keys]) {
  Vec sums[R][tile_vectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < tile_vectors; ++v) sums[r][v] = zeros();
  }
  constexpr int size = unit_size<T>;
  for (std::int64_t u = 0; u < head_dim / size; ++u) {
    const auto at = [&](const TilePages<T>& of, int v) {
      const int key = v * lanes;
      return of.keys[key / segment_keys] + u * of.key_stride + key % segment_keys * size;
    };
    Unit<T> keys[tile_vectors];
#pragma GCC unroll 8
    for (int v = 0; v < tile_vectors; ++v) keys[v] = load_units(at(tile, v));
    if (next != nullptr) {
#pragma GCC unroll 8
      for (int v = 0; v < tile_vectors; ++v) prefetch_l2(at(*next, v));
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Unit<T> x = broadcast_unit(q[r] + u * size);
#pragma GCC unroll 8
      for (int v = 0; v < tile_vectors; ++v) sums[r][v] = dot(sums[r][v], x, keys[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < tile_vectors; ++v) {
      store(scores[r] + v * lanes, sums[r][v] * broadcast(scale));
    }
  }
}

/// Keys begin .. end - 1 of a tile.
struct TileKeys {
  int begin, end;
};

/// Sums of R rows over V vectors of dimensions, the first of them dimension `d`.
template <int R, int V, typename Lanes>
struct SumTile {
  float* sums;
  std::int64_t partial;  ///< floats from row to row
  std::int64_t d;
  Lanes part;

  float* at(int r, int v) const { return sums + r * partial + d + v * lanes; }
};

/// sums[r][d] += weight * value over keys begin .. end - 1, whole units. `values_of` what is loaded
/// is multiplied. Prefetches these values of `next`, which may be null.
template <int R, int V, typename T, typename Lanes, typename ValuesOf>
void add_units(const T (*weights)[tile_keys], const TilePages<T>& tile, const TilePages<T>* next,
               TileKeys keys, const SumTile<R, V, Lanes>& to, ValuesOf values_of) {
  constexpr int size = unit_size<T>;
  Vec acc[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) acc[r][v] = load(to.at(r, v), to.part);
  }
  for (int key = keys.begin; key < keys.end; key += size) {
    const auto at = [&](const TilePages<T>& of, int v) {
      return of.values[key / segment_keys] + key % segment_keys / size * of.value_stride +
             (to.d + v * lanes) * size;
    };
    Unit<T> values[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) values[v] = values_of(load_units(at(tile, v), to.part));
    if (next != nullptr) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) prefetch_l2(at(*next, v));
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Unit<T> weight = broadcast_unit(weights[r] + key);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) acc[r][v] = dot(acc[r][v], weight, values[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(to.at(r, v), acc[r][v], to.part);
  }
}

/// The same over any keys. Of a pair with one key only the other one's value is not looked at.
template <int R, int V, typename T, typename Lanes>
void add_values(const T (*weights)[tile_keys], const TilePages<T>& tile, const TilePages<T>* next,
                TileKeys keys, const SumTile<R, V, Lanes>& to) {
  constexpr int size = unit_size<T>;
  const auto add = [&](TileKeys units, auto values_of) {
    add_units(weights, tile, next, units, to, values_of);
  };
  if constexpr (size == 2) {
    if (keys.begin % 2 != 0) {
      add({keys.begin - 1, keys.begin + 1}, [](Unit<T> x) { return second_of_pairs(x); });
      ++keys.begin;
    }
  }
  const int whole = keys.end / size * size;
  if (keys.begin < whole) add({keys.begin, whole}, [](Unit<T> x) { return x; });
  if constexpr (size == 2) {
    if (whole < keys.end) {
      add({whole, whole + 2}, [](Unit<T> x) { return first_of_pairs(x); });
    }
  }
}

/// Calls body.operator()<R>(first row) so that R rows at a time cover begin .. end-1.
template <int R, typename Body>
void in_rows(std::int64_t begin, std::int64_t end, Body&& body) {
  for (; begin + R <= end; begin += R) body.template operator()<R>(begin);
  if constexpr (R > 1) in_rows<R - 1>(begin, end, body);
}

template <typename T>
void score_rows(const T* const* q, const TilePages<T>& tile, const TilePages<T>* next,
                std::int64_t head_dim, float scale, std::int64_t begin, std::int64_t end,
                Scores& scores) {
  in_rows<rows_at_once>(begin, end, [&]<int R>(std::int64_t row) {
    score<R>(q + row, tile, row == begin ? next : nullptr, head_dim, scale, scores + row);
  });
}

/// Rows begin .. end-1 all attend to these keys of the tile.
template <typename T>
void add_rows(const Weights<T>& weights, const TilePages<T>& tile, const TilePages<T>* next,
              std::int64_t head_dim, TileKeys keys, std::int64_t begin, std::int64_t end,
              float* partials, std::int64_t partial) {
  in_rows<rows_at_once>(begin, end, [&]<int R>(std::int64_t row) {
    const TilePages<T>* const coming = row == begin ? next : nullptr;
    float* const sums = partials + row * partial;
    std::int64_t d = 0;
    for (; d + tile_vectors * lanes <= head_dim; d += tile_vectors * lanes) {
      add_values(weights + row, tile, coming, keys,
                 SumTile<R, tile_vectors, Full>{sums, partial, d, {}});
    }
    for (; d < head_dim; d += lanes) {
      add_values(weights + row, tile, coming, keys,
                 SumTile<R, 1, Part>{sums, partial, d, Part(head_dim - d)});
    }
  });
}

}  // namespace
}  // namespace hyb::kernels

/// The keys and values of one tile as both products take them. In pages they are in pieces too
/// short for the hardware prefetcher, so the next tile's are prefetched meanwhile: after 32k tokens
/// two threads of a Zen 4 take 0.8 of the time for 64/8 heads of 64, 0.6 for 8/1 heads of 512.
namespace hyb::kernels {
namespace {

/// Operands are as the pages hold them; the products prefetch.
template <typename K>
struct TileOperands {
  const TilePages<K>& of(const TilePages<K>& pages, const TilePages<K>*, std::int64_t) {
    return pages;
  }
  const TilePages<K>* to_prefetch(const TilePages<K>* next) { return next; }
};

/// Codes are widened tile by tile, once for all rows: what comes from memory is the codes.
template <>
struct TileOperands<e4m3> {
  static constexpr std::int64_t head_dim_max = 512;
  static constexpr std::int64_t codes = segment_keys * 2;  ///< of a unit and segment, side by side

  const TilePages<bf16>& of(const TilePages<e4m3>& pages, const TilePages<e4m3>* next,
                            std::int64_t head_dim) {
    const std::int64_t size = segment_keys * head_dim;
    if (next == nullptr) next = &pages;
    for (int i = 0; i < tile_segments; ++i) {
      widen(pages.keys[i], next->keys[i], pages.key_stride, head_dim / 2, keys + i * size);
      widen(pages.values[i], next->values[i], codes, head_dim / 2, values + i * size);
      tile.keys[i] = keys + i * size;
      tile.values[i] = values + i * size;
    }
    tile.key_stride = codes;
    tile.value_stride = 2 * head_dim;
    return tile;
  }

  const TilePages<bf16>* to_prefetch(const TilePages<e4m3>*) { return nullptr; }

  /// `count` times `codes`, `stride` apart, to consecutive places. An odd one is followed by
  /// a copy of it.
  void widen(const e4m3* from, const e4m3* next, std::int64_t stride, std::int64_t count,
             bf16* to) {
    for (std::int64_t i = 0; i < count; i += 2) {
      prefetch_l2(next + i * stride);
      if (stride > codes) prefetch_l2(next + (i + 1) * stride);
      const e4m3* const a = from + i * stride;
      lookup.widen(a, i + 1 < count ? a + stride : a, to + i * codes);
    }
  }

  ByteLookup lookup{&fp8_levels};
  TilePages<bf16> tile;
  alignas(64) bf16 keys[tile_keys * head_dim_max + codes], values[tile_keys * head_dim_max + codes];
};

constexpr std::int64_t run_keys = 512;
constexpr float minus_infinity = -__builtin_inff();

/// Elements of the rows that one call takes at most.
constexpr std::int64_t row_elements_max = 30 * 128;
static_assert(row_elements_max >= 12 * 256 && row_elements_max >= 6 * 512);

template <typename K>
struct TileScratch {
  alignas(64) Scores scores;
  alignas(64) Weights<KvOperand<K>> weights;
  const KvOperand<K>* q[tile_rows_max];
  TileOperands<K> operands;
};

/// Queries in the type of the product with keys, where theirs is another.
template <typename T, typename Q>
struct ConvertedRows {
  const Q* of(std::int64_t row, const T* q, std::int64_t head_dim) {
    Q* const to = values + row * head_dim;
    each_vector(head_dim,
                [&](std::int64_t i, auto part) { store(to + i, load(q + i, part), part); });
    return to;
  }
  alignas(64) Q values[row_elements_max];
};
template <typename T>
struct ConvertedRows<T, T> {
  const T* of(std::int64_t, const T* q, std::int64_t) { return q; }
};

template <typename T, typename K>
std::int64_t position_of(const AttentionRows<T, K>& job, std::int64_t row) {
  return job.position + (job.first_row + row) / job.group;
}

/// The first row whose position is at least `position`.
template <typename T, typename K>
std::int64_t first_row_at(const AttentionRows<T, K>& job, std::int64_t position) {
  if (position > position_of(job, job.rows - 1)) return job.rows;
  const std::int64_t row = (position - job.position) * job.group - job.first_row;
  return row < 0 ? 0 : row;
}

/// The first row that no longer attends to `key`, nor to any before it.
template <typename T, typename K>
std::int64_t rows_until(const AttentionRows<T, K>& job, std::int64_t key) {
  return first_row_at(job, reach_end(job.reach, key));
}

/// The keys that some row attends to.
struct KeysInReach {
  std::int64_t first, last;
};

template <typename T, typename K>
KeysInReach keys_in_reach(const AttentionRows<T, K>& job) {
  return {first_key(job.reach, position_of(job, 0)), position_of(job, job.rows - 1)};
}

/// Segments without a key in reach, whose pages may be gone or not there yet, point to one that has
/// some: their scores are masked. The tile has a key in reach.
template <typename T, typename K>
void find_tile(const AttentionRows<T, K>& job, std::int64_t tile_first, const KeysInReach& reach,
               TilePages<K>& tile) {
  constexpr int size = unit_size<K>;
  tile.key_stride = job.page_tokens * size;
  tile.value_stride = job.head_dim * size;
  const std::int64_t first_segment = reach.first / segment_keys * segment_keys;
  const std::int64_t first = tile_first > first_segment ? tile_first : first_segment;
  for (int i = 0; i < tile_segments; ++i) {
    std::int64_t key = tile_first + i * segment_keys;
    if (key < first || key > reach.last) key = first;
    const std::int64_t place = key % job.page_tokens;
    const K* const page = job.pages + job.page_table[key / job.page_tokens] * job.page_stride;
    tile.keys[i] = page + place * size;
    tile.values[i] = page + job.head_dim * job.page_tokens + place * job.head_dim;
  }
}

/// The parts of a row's partial.
struct Partial {
  float* sums;
  float* weights;
  float* largest;
};

Partial partial_at(float* partials, std::int64_t row, std::int64_t head_dim) {
  float* const sums = partials + row * attention_partial(head_dim);
  return {sums, sums + head_dim, sums + head_dim + attention_lanes_max};
}

void shrink_by(Vec factor, const Partial& partial, std::int64_t head_dim) {
  each_vector(head_dim, [&](std::int64_t i, auto part) {
    store(partial.sums + i, load(partial.sums + i, part) * factor, part);
  });
  store(partial.weights, load(partial.weights) * factor);
}

void cap_scores(float softcap, float* scores) {
  const Vec cap = broadcast(softcap);
  for (int v = 0; v < tile_vectors; ++v) {
    store(scores + v * lanes, cap * tanh(load(scores + v * lanes) / cap));
  }
}

/// Scores to weights exp(score - largest) of one row, whose partial shrinks where the largest grew.
/// Weights are summed as they are stored, so that they add up to one after the last division.
template <typename T>
void weigh_row(TileKeys keys, float* scores, T* weights, const Partial& partial,
               std::int64_t head_dim) {
  for (int i = 0; i < keys.begin; ++i) scores[i] = minus_infinity;
  for (int i = keys.end; i < tile_keys; ++i) scores[i] = minus_infinity;
  Vec score[tile_vectors];
  for (int v = 0; v < tile_vectors; ++v) score[v] = load(scores + v * lanes);
  const float tile_largest =
      largest_of(larger(larger(score[0], score[1]), larger(score[2], score[3])));
  if (tile_largest > *partial.largest) {
    shrink_by(exp(broadcast(*partial.largest - tile_largest)), partial, head_dim);
    *partial.largest = tile_largest;
  }
  const Vec largest = broadcast(*partial.largest);
  Vec sum = load(partial.weights);
  for (int v = 0; v < tile_vectors; ++v) {
    store(weights + v * lanes, exp(score[v] - largest));
    sum = sum + load(weights + v * lanes);
  }
  store(partial.weights, sum);
}

/// The keys of a tile that a row attends to: some.
template <typename T, typename K>
TileKeys keys_of_row(const AttentionRows<T, K>& job, std::int64_t row, std::int64_t tile_first) {
  const std::int64_t own = position_of(job, row), end = own + 1 - tile_first;
  const std::int64_t begin = first_key(job.reach, own) - tile_first;
  return {begin > 0 ? static_cast<int>(begin) : 0,
          end < tile_keys ? static_cast<int>(end) : tile_keys};
}

/// The tile has a key in reach.
template <typename T, typename K>
void attend_tile(const AttentionRows<T, K>& job, std::int64_t tile_first, const KeysInReach& reach,
                 TileScratch<K>& scratch, float* partials) {
  const std::int64_t partial = attention_partial(job.head_dim);
  const std::int64_t tile_last = tile_first + tile_keys - 1, next_first = tile_first + tile_keys;
  const std::int64_t begin = first_row_at(job, tile_first), end = rows_until(job, tile_last);
  TilePages<K> found, found_next;
  find_tile(job, tile_first, reach, found);
  if (next_first <= reach.last) find_tile(job, next_first, reach, found_next);
  const TilePages<K>* const next_tile = next_first <= reach.last ? &found_next : nullptr;
  const TilePages<KvOperand<K>>& tile = scratch.operands.of(found, next_tile, job.head_dim);
  const TilePages<KvOperand<K>>* const to_prefetch = scratch.operands.to_prefetch(next_tile);
  score_rows(scratch.q, tile, to_prefetch, job.head_dim, job.scale, begin, end, scratch.scores);
  for (std::int64_t row = begin; row < end; ++row) {
    if (job.softcap != 0.0F) cap_scores(job.softcap, scratch.scores[row]);
    weigh_row(keys_of_row(job, row, tile_first), scratch.scores[row], scratch.weights[row],
              partial_at(partials, row, job.head_dim), job.head_dim);
  }
  const auto add = [&](TileKeys keys, std::int64_t from, std::int64_t to) {
    add_rows(scratch.weights, tile, to_prefetch, job.head_dim, keys, from, to, partials, partial);
  };
  // Rows that begin or end within the tile go token by token: what is before or after is not theirs
  // to multiply, not even by zero.
  const auto add_by_token = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t row = from; row < to;) {
      const std::int64_t next = first_row_at(job, position_of(job, row) + 1);
      const std::int64_t last = next < to ? next : to;
      add(keys_of_row(job, row, tile_first), row, last);
      row = last;
    }
  };
  const std::int64_t whole = first_row_at(job, tile_last);
  const std::int64_t whole_end = rows_until(job, tile_first);
  if (whole >= whole_end) return add_by_token(begin, end);
  add_by_token(begin, whole);
  add({0, tile_keys}, whole, whole_end);
  add_by_token(whole_end, end);
}

/// The keys of one run; rows that do not reach it stay empty.
template <typename T, typename K>
void attend_keys_of_run(const AttentionRows<T, K>& job, std::int64_t run, float* partials) {
  const KeysInReach reach = keys_in_reach(job);
  const std::int64_t run_first = run * run_keys, run_end = run_first + run_keys;
  if (reach.first >= run_end || reach.last < run_first) return;
  TileScratch<K> scratch;
  ConvertedRows<T, KvOperand<K>> converted;
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const std::int64_t at = job.first_row + row;
    const T* const q = job.q + at / job.group * job.q_stride + at % job.group * job.head_dim;
    scratch.q[row] = converted.of(row, q, job.head_dim);
    const Partial partial = partial_at(partials, row, job.head_dim);
    for (float* each = partial.sums; each != partial.largest; ++each) *each = 0.0F;
    *partial.largest = minus_infinity;
  }
  const std::int64_t first = reach.first > run_first ? reach.first : run_first;
  for (std::int64_t key = first / tile_keys * tile_keys; key < run_end && key <= reach.last;
       key += tile_keys) {
    attend_tile(job, key, reach, scratch, partials);
  }
}

void merge(const Partial& total, const Partial& part, std::int64_t head_dim) {
  const float largest = *part.largest > *total.largest ? *part.largest : *total.largest;
  const Vec add = exp(broadcast(*part.largest - largest));
  shrink_by(exp(broadcast(*total.largest - largest)), total, head_dim);
  each_vector(head_dim, [&](std::int64_t i, auto lanes_used) {
    const Vec sums = fma(load(part.sums + i, lanes_used), add, load(total.sums + i, lanes_used));
    store(total.sums + i, sums, lanes_used);
  });
  store(total.weights, fma(load(part.weights), add, load(total.weights)));
  *total.largest = largest;
}

/// Run `run`, which is not the first, of the rows that reach it. A row's first run is its total.
template <typename T, typename K>
void merge_rows(const AttentionRows<T, K>& job, std::int64_t run, float* total, float* part) {
  const std::int64_t run_first = run * run_keys, run_last = run_first + run_keys - 1;
  const std::int64_t end = rows_until(job, run_last), begun = rows_until(job, run_first - 1);
  for (std::int64_t row = first_row_at(job, run_first); row < end; ++row) {
    const Partial from = partial_at(part, row, job.head_dim);
    const Partial to = partial_at(total, row, job.head_dim);
    if (row < begun) {
      merge(to, from, job.head_dim);
    } else {
      for (std::int64_t i = 0; i < attention_partial(job.head_dim); ++i) to.sums[i] = from.sums[i];
    }
  }
}

/// The sum of a row's weights. With a sink its sums shrink where that score is the largest: its
/// weight counts, its value is zero.
template <typename T, typename K>
Vec join_sink(const AttentionRows<T, K>& job, std::int64_t row, const Partial& partial) {
  if (job.sinks == nullptr) return broadcast(sum_of(load(partial.weights)));
  const float sink = job.sinks[(job.first_row + row) % job.group];
  const float largest = *partial.largest > sink ? *partial.largest : sink;
  shrink_by(exp(broadcast(*partial.largest - largest)), partial, job.head_dim);
  return broadcast(sum_of(load(partial.weights))) + exp(broadcast(sink - largest));
}

template <typename T, typename K>
void finish_rows(const AttentionRows<T, K>& job, float* partials) {
  for (std::int64_t row = 0; row < job.rows; ++row) {
    const std::int64_t at = job.first_row + row;
    T* const y = job.y + at / job.group * job.y_stride + at % job.group * job.head_dim;
    const Partial partial = partial_at(partials, row, job.head_dim);
    const Vec weights = join_sink(job, row, partial);
    if (job.gate == nullptr) {
      each_vector(job.head_dim, [&](std::int64_t i, auto part) {
        store(y + i, load(partial.sums + i, part) / weights, part);
      });
      continue;
    }
    const T* const gate =
        job.gate + at / job.group * job.gate_stride + at % job.group * job.gate_dim;
    const auto gates = [&](std::int64_t i, auto part) {
      return job.gate_dim == 1 ? broadcast(to_float(*gate)) : load(gate + i, part);
    };
    each_vector(job.head_dim, [&](std::int64_t i, auto part) {
      const Vec ungated = as_stored<T>(load(partial.sums + i, part) / weights);
      store(y + i, ungated * sigmoid(gates(i, part)), part);
    });
  }
}

/// The runs that some row reaches.
struct Runs {
  std::int64_t first, last;
};

template <typename T, typename K>
Runs runs_of(const AttentionRows<T, K>& job) {
  const KeysInReach reach = keys_in_reach(job);
  return {reach.first / run_keys, reach.last / run_keys};
}

template <typename T, typename K>
void attend_all(const AttentionRows<T, K>& job) {
  constexpr std::int64_t floats = 30 * attention_partial(128);
  static_assert(floats >= 12 * attention_partial(256) && floats >= 6 * attention_partial(512));
  alignas(64) float total[floats], part[floats];
  const Runs runs = runs_of(job);
  attend_keys_of_run(job, runs.first, total);
  for (std::int64_t run = runs.first + 1; run <= runs.last; ++run) {
    attend_keys_of_run(job, run, part);
    merge_rows(job, run, total, part);
  }
  finish_rows(job, total);
}

template <typename T, typename K>
void merge_all(const AttentionRows<T, K>& job, float* partials, std::int64_t run_stride) {
  const Runs runs = runs_of(job);
  for (std::int64_t run = runs.first + 1; run <= runs.last; ++run) {
    merge_rows(job, run, partials, partials + (run - runs.first) * run_stride);
  }
  finish_rows(job, partials);
}

template <typename T, typename K>
AttentionRoutes<T, K> all_routes() {
  return {attend_all<T, K>, attend_keys_of_run<T, K>, merge_all<T, K>};
}

}  // namespace

template <typename T, typename K>
struct RoutesOf<vector_isa, T, K> {
  static AttentionRoutes<T, K> attention() { return all_routes<T, K>(); }
};
template struct RoutesOf<vector_isa, float, float>;
template struct RoutesOf<vector_isa, float, bf16>;
template struct RoutesOf<vector_isa, bf16, float>;
template struct RoutesOf<vector_isa, bf16, bf16>;
template struct RoutesOf<vector_isa, float, e4m3>;
template struct RoutesOf<vector_isa, bf16, e4m3>;

}  // namespace hyb::kernels
