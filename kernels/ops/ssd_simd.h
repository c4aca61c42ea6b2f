#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

/// The state of a strip of rows stays in registers over a chunk of tokens; then the next strip.
/// What one element goes through is the same for any chunk length, so chunks may end anywhere.
namespace hyb::kernels {
namespace ssd_simd {
namespace {

constexpr int chunk_tokens = 16;
constexpr int columns_max = 256;
constexpr int heads_at_once = 32;

/// Distance at which lines are prefetched ahead of the state in use. A single token leaves the
/// machine's own prefetch too little time: without this, decode of granite-4.0-h-350m spent 16 % of
/// its time here for 7 % of its bytes.
constexpr std::int64_t elements_ahead = 2048;

/// B and C of a chunk as floats, token after token `stride` apart: the columns, and zeros up to a
/// power of two of vectors. Close together, or too few of the first-level cache's sets hold them.
struct ChunkColumns {
  alignas(64) float b[chunk_tokens * columns_max];
  alignas(64) float c[chunk_tokens * columns_max];
  std::int64_t stride;
};

/// Step sizes and decays of some heads over a chunk.
struct ChunkSteps {
  alignas(64) float dt[chunk_tokens][heads_at_once];
  alignas(64) float decay[chunk_tokens][heads_at_once];
};

/// For a vector of state rows: their inputs, and per row the lanes whose sum is S * C.
struct ChunkRows {
  alignas(64) float input[chunk_tokens][lanes];
  Vec parts[chunk_tokens][lanes];
};

struct Chunk {
  std::int64_t first;
  int tokens;
};

template <typename T, typename S>
void load_columns(const SsdShare<T, S>& job, Chunk chunk, std::int64_t group, ChunkColumns& out) {
  const std::int64_t b = job.heads * job.rows + group * job.columns;
  for (int t = 0; t < chunk.tokens; ++t) {
    const T* const line = job.x + (chunk.first + t) * job.x_stride + b;
    each_vector(job.columns, [&](std::int64_t n, auto part) {
      store(out.b + t * out.stride + n, load(line + n, part));
      store(out.c + t * out.stride + n, load(line + job.groups * job.columns + n, part));
    });
  }
}

template <typename T, typename S>
void load_steps(const SsdShare<T, S>& job, Chunk chunk, std::int64_t head, std::int64_t heads,
                ChunkSteps& out) {
  each_vector(heads, [&](std::int64_t i, auto part) {
    const Vec a = load(job.rate + head + i, part);
    const Vec bias = load(job.dt_bias + head + i, part);
    for (int t = 0; t < chunk.tokens; ++t) {
      const T* const raw = job.dt + (chunk.first + t) * job.dt_stride + head + i;
      const Vec soft = softplus(load(raw, part) + bias);
      const Vec dt = smaller(broadcast(job.dt_max), larger(broadcast(job.dt_min), soft));
      store(out.dt[t] + i, dt);
      store(out.decay[t] + i, exp(dt * a));
    }
  });
}

/// Columns of the state that a strip covers, and where it comes from and goes to.
template <typename S>
struct Strip {
  const S* from;                 ///< null: zeros
  S* to;                         ///< null: it is not kept
  std::int64_t column, columns;  ///< first column, and how many are left from there
  std::int64_t row_stride;
};

/// R rows times V vectors of columns over a chunk. `row` is the first row's place in `rows`. Whole:
/// all vectors are full. Where a loop over the state is not unrolled, or its vectors choose one by
/// one between full and part, g++ 12 keeps the state in memory: a token of granite-4.0-h-350m took
/// 1.6 times as long with AVX-512, a chunk of 16 1.1 times.
template <int R, int V, bool Whole, typename S>
void run_strip(const Strip<S>& strip, const ChunkColumns& columns, const float* decay, int tokens,
               int row, bool first_strip, ChunkRows& rows) {
  Vec s[R][V];
  const auto at = [&](int r, int v) { return r * strip.row_stride + v * lanes; };
  const auto each = [&](auto&& body) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) {
        const std::int64_t left = strip.columns - v * lanes;
        if constexpr (Whole) {
          body(r, v, Full{});
        } else if (left > 0) {
          body(r, v, Part(left));
        }
      }
    }
  };
#pragma GCC unroll 4
  for (auto& line : s) {
#pragma GCC unroll 16
    for (Vec& cell : line) cell = zeros();
  }
  if (strip.from != nullptr) {
    each([&](int r, int v, auto part) {
      prefetch(strip.from + at(r, v) + elements_ahead);
      s[r][v] = load(strip.from + at(r, v), part);
    });
  }
  for (int t = 0; t < tokens; ++t) {
    const float* const b = columns.b + t * columns.stride + strip.column;
    const float* const c = columns.c + t * columns.stride + strip.column;
    const Vec keep = broadcast(decay[t * heads_at_once]);
    Vec sums[R][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      sums[r][0] = first_strip ? zeros() : rows.parts[t][row + r];
      sums[r][1] = zeros();
    }
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      const Vec bv = load(b + v * lanes), cv = load(c + v * lanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        s[r][v] = as_stored<S>(fma(s[r][v], keep, broadcast(rows.input[t][row + r]) * bv));
        sums[r][v % 2] = fma(s[r][v], cv, sums[r][v % 2]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) rows.parts[t][row + r] = sums[r][0] + sums[r][1];
  }
  if (strip.to == nullptr) return;
  each([&](int r, int v, auto part) { store(strip.to + at(r, v), s[r][v], part); });
}

/// Returns how many rows at once fit into registers.
constexpr int rows_at_once(int vectors) {
  const int fit = registers / 2 / vectors;
  return fit > 4 ? 4 : fit < 1 ? 1 : fit;
}

template <int V, typename S>
void run_strips(Strip<S> strip, const ChunkColumns& columns, const float* decay, int tokens,
                int row_count, ChunkRows& rows) {
  constexpr int at_once = rows_at_once(V);
  const bool first_strip = strip.column == 0;
  const auto advance = [&](int count) {
    if (strip.from != nullptr) strip.from += count * strip.row_stride;
    if (strip.to != nullptr) strip.to += count * strip.row_stride;
  };
  int row = 0;
  const auto run = [&]<int R, bool Whole>() {
    for (; row + R <= row_count; row += R, advance(R)) {
      run_strip<R, V, Whole>(strip, columns, decay, tokens, row, first_strip, rows);
    }
  };
  if (strip.columns >= V * lanes) {
    run.template operator()<at_once, true>();
    run.template operator()<1, true>();
  } else {
    run.template operator()<at_once, false>();
    run.template operator()<1, false>();
  }
}

/// Columns per strip: all of them with AVX-512, 64 with the fewer registers of AVX2.
constexpr int strip_vectors_max = registers / 2;

template <typename S>
void run_all_columns(Strip<S> strip, std::int64_t columns, const ChunkColumns& values,
                     const float* decay, int tokens, int row_count, ChunkRows& rows) {
  const S* const from = strip.from;
  S* const to = strip.to;
  for (std::int64_t n = 0; n < columns; n += strip_vectors_max * lanes) {
    strip.column = n;
    strip.columns = columns - n;
    strip.from = from == nullptr ? nullptr : from + n;
    strip.to = to == nullptr ? nullptr : to + n;
    const std::int64_t vectors = (strip.columns + lanes - 1) / lanes;
    if (vectors <= 1) {
      run_strips<1>(strip, values, decay, tokens, row_count, rows);
    } else if (vectors <= 2) {
      run_strips<2>(strip, values, decay, tokens, row_count, rows);
    } else if (vectors <= 4) {
      run_strips<4>(strip, values, decay, tokens, row_count, rows);
    } else if (vectors <= 8) {
      run_strips<8>(strip, values, decay, tokens, row_count, rows);
    } else {
      run_strips<strip_vectors_max>(strip, values, decay, tokens, row_count, rows);
    }
  }
}

/// Up to one vector of rows of one head over a chunk, from the state to y.
template <typename T, typename S>
void run_rows(const SsdShare<T, S>& job, Chunk chunk, const ChunkColumns& columns, const float* dt,
              const float* decay, std::int64_t head, std::int64_t row, const S* from, S* to) {
  ChunkRows rows;
  const Part part(job.rows - row);
  const int row_count = static_cast<int>(job.rows - row < lanes ? job.rows - row : lanes);
  const std::int64_t at = head * job.rows + row;
  const T* const x = job.x + chunk.first * job.x_stride + at;
  for (int t = 0; t < chunk.tokens; ++t) {
    store(rows.input[t], broadcast(dt[t * heads_at_once]) * load(x + t * job.x_stride, part));
  }
  const std::int64_t offset = at * job.columns;
  run_all_columns<S>({.from = from == nullptr ? nullptr : from + offset,
                      .to = to == nullptr ? nullptr : to + offset,
                      .column = 0,
                      .columns = job.columns,
                      .row_stride = job.columns},
                     job.columns, columns, decay, chunk.tokens, row_count, rows);
  const Vec d = broadcast(job.d[head]);
  T* const y = job.y + chunk.first * job.y_stride + at;
  for (int t = 0; t < chunk.tokens; ++t) {
    const Vec sums = sums_of(rows.parts[t]);
    store(y + t * job.y_stride, fma(d, load(x + t * job.x_stride, part), sums), part);
  }
}

/// Vectors of rows begin .. end-1 of one span, counted over all heads, over one chunk.
template <typename T, typename S>
void run_chunk(const SsdShare<T, S>& job, Chunk chunk, std::int64_t begin, std::int64_t end,
               const S* from, S* to, ChunkColumns& columns) {
  const std::int64_t per_head = (job.rows + lanes - 1) / lanes;
  const std::int64_t heads_per_group = job.heads / job.groups;
  ChunkSteps steps;
  std::int64_t loaded_group = -1, loaded_head = -heads_at_once;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t head = item / per_head;
    if (head / heads_per_group != loaded_group) {
      loaded_group = head / heads_per_group;
      load_columns(job, chunk, loaded_group, columns);
    }
    if (head >= loaded_head + heads_at_once) {
      const std::int64_t left = (end - 1) / per_head + 1 - head;
      loaded_head = head;
      load_steps(job, chunk, head, left < heads_at_once ? left : heads_at_once, steps);
    }
    const std::int64_t i = head - loaded_head;
    run_rows(job, chunk, columns, steps.dt[0] + i, steps.decay[0] + i, head,
             item % per_head * lanes, from, to);
  }
}

void lay_out(std::int64_t used, ChunkColumns& columns) {
  columns.stride = lanes;
  while (columns.stride < used) columns.stride *= 2;
  for (std::int64_t t = 0; t < chunk_tokens; ++t) {
    for (std::int64_t n = used / lanes * lanes; n < columns.stride; n += lanes) {
      store(columns.b + t * columns.stride + n, zeros());
      store(columns.c + t * columns.stride + n, zeros());
    }
  }
}

template <typename T, typename S>
void run_share(const SsdShare<T, S>& job) {
  const std::int64_t items = job.heads * ((job.rows + lanes - 1) / lanes);
  const std::int64_t begin = items * job.thread / job.threads;
  const std::int64_t end = items * (job.thread + 1) / job.threads;
  if (begin == end) return;
  ChunkColumns columns;
  lay_out(job.columns, columns);
  for (std::int64_t span = 0; span < job.spans; ++span) {
    const std::int32_t slot = job.read_slot[span];
    const S* from = slot < 0 ? nullptr : job.state + slot * job.slot_stride;
    const std::int32_t into = job.write_slot[span];  // none: all tokens are one chunk
    S* const to = into < 0 ? nullptr : job.state + into * job.slot_stride;
    std::int64_t t = job.span_begin[span];
    const std::int64_t last = job.span_begin[span + 1];
    for (; t < last; t += chunk_tokens, from = to) {
      const int tokens = static_cast<int>(last - t < chunk_tokens ? last - t : chunk_tokens);
      run_chunk(job, {t, tokens}, begin, end, from, to, columns);
    }
  }
}

}  // namespace
}  // namespace ssd_simd

template <typename T, typename S>
struct VectorRoute<vector_isa, SsdShare<T, S>> {
  static void run(const SsdShare<T, S>& job) { ssd_simd::run_share(job); }
};
template struct VectorRoute<vector_isa, SsdShare<float, float>>;
template struct VectorRoute<vector_isa, SsdShare<float, bf16>>;
template struct VectorRoute<vector_isa, SsdShare<bf16, float>>;
template struct VectorRoute<vector_isa, SsdShare<bf16, bf16>>;

}  // namespace hyb::kernels
