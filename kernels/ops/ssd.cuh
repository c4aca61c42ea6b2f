#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/ssd.h"

namespace hyb::kernels::cuda {

/// The parameters of every kernel of ssd.
template <typename T, typename S>
struct SsdParams : RecurrenceParams<T, S>, SsdShape {
  const T* dt;
  const float* d;
  std::int64_t dt_stride;

  /// Returns where B of a head's group starts in a row of x; C is groups * columns after it.
  __device__ std::int64_t b_of(int head) const {
    const int group = head / (this->heads / groups);
    return static_cast<std::int64_t>(this->heads) * this->rows + group * this->columns;
  }
  __device__ std::int64_t c_of(int head) const {
    return b_of(head) + static_cast<std::int64_t>(groups) * this->columns;
  }
};

/// dt from what the model computes for it: softplus, clamped; NaN stays NaN.
__device__ __forceinline__ float step_size(float raw, float dt_min, float dt_max) {
  const float soft = softplus(raw);
  return soft < dt_min ? dt_min : soft > dt_max ? dt_max : soft;
}
/// Returns what a step of dt leaves of the old state.
__device__ __forceinline__ float step_decay(float dt, float rate) { return expf(dt * rate); }

template <typename T, typename S>
SsdParams<T, S> ssd_params(const MambaScan& op) {
  return {recurrence_params<T, S>(op), op.shape, op.dt.as<T>(), op.d.as<float>(), op.dt.row_stride};
}

// mamba_step and ssd's scan update the rows of a head's state with the same instructions, so that
// decode, chunks and a whole prefill give the same bits. A warp owns `warp_rows` rows at a time,
// its lanes the columns: V each, in vectors of up to four, lane after lane.

inline constexpr int warp_rows = 4;

template <int V>
inline constexpr int vector_columns = V < 4 ? V : 4;

/// The column of element i of a lane's V, where i is the first of a vector.
template <int V>
__device__ __forceinline__ int column_of(int i) {
  return i * warp_size + static_cast<int>(threadIdx.x) % warp_size * vector_columns<V>;
}

/// The vector at element i of a lane's V.
template <int V, typename T>
__device__ __forceinline__ void load_vector(const T* from, float (&values)[V], int i) {
  constexpr int width = vector_columns<V>;
  if constexpr (width == 4) {
    float four[4];
    load_four(from, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[i + j] = four[j];
  } else if constexpr (width == 2) {
    const float2 pair = load_pair(from);
    values[i] = pair.x;
    values[i + 1] = pair.y;
  } else {
    values[i] = to_float(*from);
  }
}
template <int V, typename T>
__device__ __forceinline__ void store_vector(T* to, const float (&values)[V], int i) {
  constexpr int width = vector_columns<V>;
  if constexpr (width == 4) {
    store_four(to, {values[i], values[i + 1], values[i + 2], values[i + 3]});
  } else if constexpr (width == 2) {
    store_pair(to, values[i], values[i + 1]);
  } else {
    *to = rounded<T>(values[i]);
  }
}

/// A lane's columns of a row in shared memory that is padded to V for every lane.
template <int V, typename T>
__device__ __forceinline__ void load_columns(const T* row, float (&values)[V]) {
#pragma unroll
  for (int i = 0; i < V; i += vector_columns<V>) load_vector<V>(row + column_of<V>(i), values, i);
}

/// The warp's rows of a state: where they are, how many there are of them, and of their columns.
struct StateRows {
  int rows, columns;
  bool is_aligned;  ///< vectors of the columns' width are, and fill the rows
};

/// Zeros where rows or columns end, or where `from` is null.
template <typename S, int V>
__device__ __forceinline__ void load_rows(const S* from, const StateRows& at,
                                          float (&state)[warp_rows][V]) {
  constexpr int width = vector_columns<V>;
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
#pragma unroll
    for (int i = 0; i < V; i += width) {
      const int column = column_of<V>(i);
      const S* const place = from + static_cast<std::int64_t>(r) * at.columns + column;
      const bool is_there = from != nullptr && r < at.rows;
#pragma unroll
      for (int j = 0; j < width; ++j) state[r][i + j] = 0.0F;
      if (at.is_aligned) {
        if (is_there && column < at.columns) load_vector<V>(place, state[r], i);
      } else {
#pragma unroll
        for (int j = 0; j < width; ++j) {
          if (is_there && column + j < at.columns) state[r][i + j] = to_float(place[j]);
        }
      }
    }
  }
}
template <typename S, int V>
__device__ __forceinline__ void store_rows(S* to, const StateRows& at,
                                           const float (&state)[warp_rows][V]) {
  constexpr int width = vector_columns<V>;
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
#pragma unroll
    for (int i = 0; i < V; i += width) {
      const int column = column_of<V>(i);
      S* const place = to + static_cast<std::int64_t>(r) * at.columns + column;
      if (at.is_aligned) {
        if (r < at.rows && column < at.columns) store_vector<V>(place, state[r], i);
      } else {
#pragma unroll
        for (int j = 0; j < width; ++j) {
          if (r < at.rows && column + j < at.columns) place[j] = rounded<S>(state[r][i + j]);
        }
      }
    }
  }
}

/// One token: the state advances, rounded to S, and is multiplied by C. Returns S*C of row
/// lane/8 of the warp's.
template <typename S, int V>
__device__ __forceinline__ float advance(float (&state)[warp_rows][V], float decay,
                                         const float (&input)[warp_rows], const float (&b)[V],
                                         const float (&c)[V]) {
  float sums[warp_rows];
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
    sums[r] = 0.0F;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float next = fmaf(state[r][i], decay, input[r] * b[i]);
      state[r][i] = to_float(rounded<S>(next));
      sums[r] = fmaf(state[r][i], c[i], sums[r]);
    }
  }
  return warp_sums(sums);
}

/// Calls body with the number of columns per lane that `columns` need.
template <typename Body>
void visit_columns(std::int64_t columns, Body&& body) {
  if (columns <= 32) return body(std::integral_constant<int, 1>{});
  if (columns <= 64) return body(std::integral_constant<int, 2>{});
  if (columns <= 128) return body(std::integral_constant<int, 4>{});
  body(std::integral_constant<int, 8>{});
}

}  // namespace hyb::kernels::cuda
