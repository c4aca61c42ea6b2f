#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

/// Columns of a state do not know of each other, so a thread takes a strip of them from a span's
/// first token to its last, in a tile that stays in the first-level cache. For one token
///
///   m = S^T k   n = S^T q   d = beta (v - keep m)   y = keep n + (k.q) d   S <- keep S + k d^T
///
/// and the state that one token leaves is read for the next one in the same pass. What one column
/// goes through is the same for any cut and any strip. Where every row has a decay of its own,
/// diag(keep) k and diag(keep) q find m and n, which are not scaled then.
namespace hyb::kernels {
namespace delta_rule_simd {
namespace {

constexpr int chunk_tokens = 16;
constexpr int rows_max = 256;
constexpr int tile_vectors_max = registers / 8;    ///< of columns: 32 KB for 128 rows
constexpr int direct_vectors_max = registers / 4;  ///< where one token needs no tile

/// Distance at which lines are prefetched ahead of the state in use, where one token goes through
/// memory: its run through a head is too short for the machine's own prefetch.
constexpr std::int64_t elements_ahead = 2048;

/// The keys and queries of a key head over a chunk, normalized, and their products.
struct ChunkKeys {
  alignas(64) float k[chunk_tokens * rows_max];
  alignas(64) float q[chunk_tokens * rows_max];
  float products[chunk_tokens];
  std::int64_t stride;  ///< from token to token: whole vectors, zeros past the rows
};

/// beta and keep of a head over a chunk.
struct ChunkGates {
  alignas(64) float beta[chunk_tokens];
  alignas(64) float keep[chunk_tokens];
};

/// Holds the decays of a head whose rows have decays of their own, over a chunk: these, and times
/// them k and q.
struct ChunkDecays {
  alignas(64) float keep[chunk_tokens * rows_max];
  alignas(64) float k[chunk_tokens * rows_max];
  alignas(64) float q[chunk_tokens * rows_max];
};
struct NoDecays {};

template <bool Channels>
struct ChunkInputs {
  ChunkKeys keys;
  ChunkGates gates;
  std::conditional_t<Channels, ChunkDecays, NoDecays> decays;
  std::int64_t keys_token = -1, key_head = -1;  ///< what `keys` are of
  std::int64_t gates_token = -1, head = -1;

  /// Returns the vector that finds what the state has for a token's k.
  const float* find_k(int t) const {
    if constexpr (Channels) return decays.k + t * keys.stride;
    return keys.k + t * keys.stride;
  }
  const float* find_q(int t) const {
    if constexpr (Channels) return decays.q + t * keys.stride;
    return keys.q + t * keys.stride;
  }
};

struct Chunk {
  std::int64_t first;
  int tokens;
};

/// A run of columns of a head's state, and what memory holds of them.
template <typename S>
struct Strip {
  std::int64_t head, column, columns;
  const S* from;  ///< null: zeros
  S* to;          ///< null: it is not kept
};

float root(float value) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value))); }

/// 1 / sqrt(sum values^2 + delta_rule_eps)
template <typename T>
float inverse_length(const T* values, std::int64_t count) {
  Vec sum = zeros();
  each_vector(count, [&](std::int64_t i, auto part) {
    const Vec a = load(values + i, part);
    sum = fma(a, a, sum);
  });
  return 1.0F / root(sum_of(sum) + delta_rule_eps);
}

template <typename T, typename S>
void load_keys(const DeltaRuleShare<T, S>& job, Chunk chunk, std::int64_t key_head,
               ChunkKeys& out) {
  out.stride = (job.rows + lanes - 1) / lanes * lanes;
  for (int t = 0; t < chunk.tokens; ++t) {
    const T* const q = job.q_of(chunk.first + t, key_head);
    const T* const k = job.k_of(chunk.first + t, key_head);
    const Vec q_scale = broadcast(inverse_length(q, job.rows) * job.q_scale);
    const Vec k_scale = broadcast(inverse_length(k, job.rows));
    Vec sum = zeros();
    each_vector(job.rows, [&](std::int64_t i, auto part) {
      const Vec a = load(k + i, part) * k_scale, b = load(q + i, part) * q_scale;
      store(out.k + t * out.stride + i, a);
      store(out.q + t * out.stride + i, b);
      sum = fma(a, b, sum);
    });
    out.products[t] = sum_of(sum);
  }
}

template <typename T, typename S>
void load_decays(const DeltaRuleShare<T, S>& job, Chunk chunk, std::int64_t head,
                 const ChunkKeys& keys, ChunkDecays& out) {
  const Vec rate = broadcast(job.rate[head]), floor = broadcast(job.decay_floor);
  const float* const bias = job.dt_bias_of(head);
  for (int t = 0; t < chunk.tokens; ++t) {
    const T* const a = job.a_of(chunk.first + t, head);
    each_vector(job.rows, [&](std::int64_t i, auto part) {
      const std::int64_t at = t * keys.stride + i;
      const Vec raw = load(a + i, part) + load(bias + i, part);
      const Vec keep = exp(job.decay_floor == 0.0F ? rate * softplus(raw)
                                                   : floor * sigmoid(zeros() - rate * raw));
      store(out.keep + at, keep);
      store(out.k + at, keep * load(keys.k + at));
      store(out.q + at, keep * load(keys.q + at));
    });
  }
}

template <typename T, typename S>
void load_gates(const DeltaRuleShare<T, S>& job, Chunk chunk, std::int64_t head, ChunkGates& out) {
  alignas(64) float a[chunk_tokens] = {}, b[chunk_tokens] = {};
  for (int t = 0; t < chunk.tokens; ++t) {
    if (!job.per_channel) a[t] = scalar(job.a[(chunk.first + t) * job.a_stride + head]);
    b[t] = scalar(job.b[(chunk.first + t) * job.b_stride + head]);
  }
  const Vec rate = broadcast(job.rate[head]);
  const Vec bias = broadcast(job.dt_bias_of(head)[0]);
  for (int t = 0; t < chunk.tokens; t += lanes) {
    store(out.beta + t, broadcast(job.beta_scale) * sigmoid(load(b + t)));
    store(out.keep + t, exp(rate * softplus(load(a + t) + bias)));
  }
}

template <bool Channels, typename T, typename S>
void load_inputs(const DeltaRuleShare<T, S>& job, Chunk chunk, std::int64_t head,
                 ChunkInputs<Channels>& inputs) {
  const std::int64_t key_head = job.key_head_of(head);
  if (inputs.keys_token != chunk.first || inputs.key_head != key_head) {
    load_keys(job, chunk, key_head, inputs.keys);
    inputs.keys_token = chunk.first;
    inputs.key_head = key_head;
  }
  if (inputs.gates_token != chunk.first || inputs.head != head) {
    load_gates(job, chunk, head, inputs.gates);
    if constexpr (Channels) load_decays(job, chunk, head, inputs.keys, inputs.decays);
    inputs.gates_token = chunk.first;
    inputs.head = head;
  }
}

/// Holds what k and q find in V vectors of columns.
template <int V>
struct Found {
  Vec by_k[V], by_q[V];
};

template <int V, bool FromMemory, typename From>
Found<V> find(const From* from, std::int64_t stride, std::int64_t rows, const float* k,
              const float* q) {
  Found<V> found;
  for (int v = 0; v < V; ++v) found.by_k[v] = found.by_q[v] = zeros();
  for (std::int64_t i = 0; i < rows; ++i, from += stride) {
    const Vec key = broadcast(k[i]), query = broadcast(q[i]);
    for (int v = 0; v < V; ++v) {
      if constexpr (FromMemory) prefetch(from + v * lanes + elements_ahead);
      const Vec s = load(from + v * lanes);
      found.by_k[v] = fma(s, key, found.by_k[v]);
      found.by_q[v] = fma(s, query, found.by_q[v]);
    }
  }
  return found;
}

/// Holds what a token does to the state. Passed by value: what is read through a reference may be
/// what a store to the tile has changed, and is read again.
template <int V, bool Channels>
struct Change {
  Vec keep, delta[V];
  const float *k, *keeps;  ///< keeps: of the rows

  [[gnu::always_inline]] Vec keep_of(std::int64_t row) const {
    return Channels ? broadcast(keeps[row]) : keep;
  }
  template <typename S>
  [[gnu::always_inline]] Vec apply(Vec s, Vec kept, Vec key, int v) const {
    return as_stored<S>(fma(s, kept, key * delta[v]));
  }
};

template <int V, typename S, bool Channels, typename From, typename To>
void update(const From* from, To* to, std::int64_t stride, std::int64_t rows,
            Change<V, Channels> change) {
  for (std::int64_t i = 0; i < rows; ++i, from += stride, to += stride) {
    const Vec key = broadcast(change.k[i]), kept = change.keep_of(i);
    for (int v = 0; v < V; ++v) {
      store(to + v * lanes, change.template apply<S>(load(from + v * lanes), kept, key, v));
    }
  }
}

/// The change of one token, and what the next one finds.
template <int V, typename S, bool Channels>
Found<V> update_and_find(float* tile, std::int64_t rows, Change<V, Channels> change, const float* k,
                         const float* q) {
  Found<V> found;
  for (int v = 0; v < V; ++v) found.by_k[v] = found.by_q[v] = zeros();
  for (std::int64_t i = 0; i < rows; ++i, tile += V * lanes) {
    const Vec kept = change.keep_of(i);
    const Vec old_key = broadcast(change.k[i]), key = broadcast(k[i]), query = broadcast(q[i]);
    for (int v = 0; v < V; ++v) {
      const Vec s = change.template apply<S>(load(tile + v * lanes), kept, old_key, v);
      store(tile + v * lanes, s);
      found.by_k[v] = fma(s, key, found.by_k[v]);
      found.by_q[v] = fma(s, query, found.by_q[v]);
    }
  }
  return found;
}

/// Writes y of the chunk's token `t`; how the state changes.
template <int V, bool Channels, typename T, typename S>
Change<V, Channels> answer(const DeltaRuleShare<T, S>& job, Chunk chunk,
                           const ChunkInputs<Channels>& inputs, int t, const Strip<S>& strip,
                           const Found<V>& found) {
  Change<V, Channels> change;
  change.keep = broadcast(Channels ? 1.0F : inputs.gates.keep[t]);
  change.k = inputs.keys.k + t * inputs.keys.stride;
  if constexpr (Channels) change.keeps = inputs.decays.keep + t * inputs.keys.stride;
  const Vec beta = broadcast(inputs.gates.beta[t]), product = broadcast(inputs.keys.products[t]);
  const T* const v_row = job.v_of(chunk.first + t, strip.head) + strip.column;
  T* const y = job.y + (chunk.first + t) * job.y_stride + strip.head * job.columns + strip.column;
  const auto one = [&](int v, auto part) {
    const Vec value = load(v_row + v * lanes, part);
    change.delta[v] = beta * (value - change.keep * found.by_k[v]);
    store(y + v * lanes, fma(product, change.delta[v], change.keep * found.by_q[v]), part);
  };
  for (int v = 0; v < V; ++v) {
    const std::int64_t left = strip.columns - v * lanes;
    change.delta[v] = zeros();
    if (left >= lanes) {
      one(v, Full{});
    } else if (left > 0) {
      one(v, Part(left));
    }
  }
  return change;
}

/// One token, from memory to memory; all V vectors of the strip are full.
template <int V, bool Channels, typename T, typename S>
void run_token(const DeltaRuleShare<T, S>& job, std::int64_t token, const Strip<S>& strip,
               ChunkInputs<Channels>& inputs) {
  const Chunk chunk = {token, 1};
  load_inputs(job, chunk, strip.head, inputs);
  const Found<V> found =
      find<V, true>(strip.from, job.columns, job.rows, inputs.find_k(0), inputs.find_q(0));
  const auto change = answer<V>(job, chunk, inputs, 0, strip, found);
  if (strip.to == nullptr) return;
  update<V, S>(strip.from, strip.to, job.columns, job.rows, change);
}

template <int V, bool Channels, typename T, typename S>
void run_chunk(const DeltaRuleShare<T, S>& job, Chunk chunk, const Strip<S>& strip,
               const ChunkInputs<Channels>& inputs, float* tile) {
  Found<V> found = find<V, false>(tile, V * lanes, job.rows, inputs.find_k(0), inputs.find_q(0));
  for (int t = 0;; ++t) {
    const auto change = answer<V>(job, chunk, inputs, t, strip, found);
    if (t + 1 == chunk.tokens) return update<V, S>(tile, tile, V * lanes, job.rows, change);
    found =
        update_and_find<V, S>(tile, job.rows, change, inputs.find_k(t + 1), inputs.find_q(t + 1));
  }
}

/// Calls body(place in the tile, place in the state, Full or Part) for every vector of a strip.
template <int V, typename Body>
void each_cell(std::int64_t rows, std::int64_t row_stride, std::int64_t columns, Body&& body) {
  for (std::int64_t i = 0; i < rows; ++i) {
    each_vector(columns, [&](std::int64_t j, auto part) {
      body(i * V * lanes + j, i * row_stride + j, part);
    });
  }
}

/// A span over a strip of at most V vectors.
template <int V, bool Channels, typename T, typename S>
void run_tile(const DeltaRuleShare<T, S>& job, std::int64_t span, const Strip<S>& strip,
              ChunkInputs<Channels>& inputs) {
  alignas(64) float tile[rows_max * V * lanes];
  if (strip.from == nullptr || strip.columns < V * lanes) {
    for (std::int64_t i = 0; i < job.rows * V * lanes; i += lanes) store(tile + i, zeros());
  }
  if (strip.from != nullptr) {
    each_cell<V>(job.rows, job.columns, strip.columns,
                 [&](std::int64_t i, std::int64_t j, auto part) {
                   store(tile + i, load(strip.from + j, part));
                 });
  }
  const std::int64_t end = job.span_begin[span + 1];
  for (std::int64_t t = job.span_begin[span]; t < end; t += chunk_tokens) {
    const Chunk chunk = {t, static_cast<int>(end - t < chunk_tokens ? end - t : chunk_tokens)};
    load_inputs(job, chunk, strip.head, inputs);
    run_chunk<V>(job, chunk, strip, inputs, tile);
  }
  if (strip.to == nullptr) return;
  each_cell<V>(job.rows, job.columns, strip.columns,
               [&](std::int64_t i, std::int64_t j, auto part) {
                 store(strip.to + j, load(tile + i), part);
               });
}

/// Runs as many of the strip's vectors as one call takes, and returns how many.
template <bool Channels, typename T, typename S>
std::int64_t run_some(const DeltaRuleShare<T, S>& job, std::int64_t span, Strip<S> strip,
                      ChunkInputs<Channels>& inputs) {
  const std::int64_t token = job.span_begin[span], full = strip.columns / lanes;
  if (strip.from != nullptr && job.span_begin[span + 1] == token + 1 && full > 0) {
    const auto run = [&]<int V>() {
      strip.columns = V * lanes;
      run_token<V>(job, token, strip, inputs);
      return V;
    };
    if constexpr (direct_vectors_max >= 8) {
      if (full >= 8) return run.template operator()<8>();
    }
    if (full >= 4) return run.template operator()<4>();
    if (full >= 2) return run.template operator()<2>();
    return run.template operator()<1>();
  }
  constexpr std::int64_t widest = tile_vectors_max * lanes;
  if (strip.columns > widest) strip.columns = widest;
  const std::int64_t vectors = (strip.columns + lanes - 1) / lanes;
  if (vectors == 1) {
    run_tile<1>(job, span, strip, inputs);
  } else if (vectors == 2) {
    run_tile<2>(job, span, strip, inputs);
  } else {
    run_tile<tile_vectors_max>(job, span, strip, inputs);
  }
  return vectors;
}

template <bool Channels, typename T, typename S>
void run_share(const DeltaRuleShare<T, S>& job) {
  const std::int64_t per_head = (job.columns + lanes - 1) / lanes;
  const std::int64_t items = job.value_heads * per_head;  // vectors of columns
  const std::int64_t begin = items * job.thread / job.threads;
  const std::int64_t end = items * (job.thread + 1) / job.threads;
  if (begin == end) return;
  ChunkInputs<Channels> inputs;
  for (std::int64_t span = 0; span < job.spans; ++span) {
    const std::int32_t slot = job.read_slot[span];
    const S* const from = slot < 0 ? nullptr : job.state + slot * job.slot_stride;
    const std::int32_t into = job.write_slot[span];
    S* const to = into < 0 ? nullptr : job.state + into * job.slot_stride;
    for (std::int64_t item = begin; item < end;) {
      const std::int64_t head = job.head_at(item / per_head), column = item % per_head * lanes;
      const std::int64_t in_share = (end - item) * lanes, in_head = job.columns - column;
      const std::int64_t at = head * job.rows * job.columns + column;
      const Strip<S> strip = {.head = head,
                              .column = column,
                              .columns = in_share < in_head ? in_share : in_head,
                              .from = from == nullptr ? nullptr : from + at,
                              .to = to == nullptr ? nullptr : to + at};
      item += run_some(job, span, strip, inputs);
    }
  }
}

}  // namespace
}  // namespace delta_rule_simd

template <typename T, typename S>
struct VectorRoute<vector_isa, DeltaRuleShare<T, S>> {
  static void run(const DeltaRuleShare<T, S>& job) {
    job.per_channel ? delta_rule_simd::run_share<true>(job)
                    : delta_rule_simd::run_share<false>(job);
  }
};
template struct VectorRoute<vector_isa, DeltaRuleShare<float, float>>;
template struct VectorRoute<vector_isa, DeltaRuleShare<float, bf16>>;
template struct VectorRoute<vector_isa, DeltaRuleShare<bf16, float>>;
template struct VectorRoute<vector_isa, DeltaRuleShare<bf16, bf16>>;

}  // namespace hyb::kernels
