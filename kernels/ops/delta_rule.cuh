#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/delta_rule.h"

namespace hyb::kernels::cuda {

/// The parameters of every kernel of delta_rule; a head, of values, has Dk rows of Dv columns.
template <typename T, typename S>
struct DeltaRuleParams : RecurrenceParams<T, S>, DeltaShape {
  const T *b, *a;
  std::int64_t b_stride, a_stride;
  float q_scale;  ///< Dk^-0.5

  /// Returns where the q of a head's key head starts in a row of x; k is k_distance() after it.
  __host__ __device__ std::int64_t q_of(int head) const {
    const int key_head = tiled ? head % key_heads : head / (this->heads / key_heads);
    return static_cast<std::int64_t>(key_head) * this->rows;
  }
  __host__ __device__ std::int64_t k_distance() const {
    return static_cast<std::int64_t>(key_heads) * this->rows;
  }
  __host__ __device__ std::int64_t v_of(int head) const {
    return 2 * k_distance() + static_cast<std::int64_t>(head) * this->columns;
  }
  /// Returns the state of a head in a slot.
  __host__ __device__ std::int64_t state_of(int head) const {
    return static_cast<std::int64_t>(head) * this->rows * this->columns;
  }
};

/// The logarithm of what a token leaves of the state, or of a row of it: never above 0; NaN stays
/// NaN.
__device__ __forceinline__ float log_keep(float a, float dt_bias, float rate, float floor = 0.0F) {
  const float raw = a + dt_bias;
  return floor == 0.0F ? rate * softplus(raw) : floor / (1.0F + expf(rate * raw));
}
__device__ __forceinline__ float write_strength(float b, float scale) {
  return scale / (1.0F + expf(-b));
}

template <typename T, typename S>
DeltaRuleParams<T, S> delta_rule_params(const DeltaRule& op) {
  return {recurrence_params<T, S>(op),
          op.shape,
          op.b.as<T>(),
          op.a.as<T>(),
          op.b.row_stride,
          op.a.row_stride,
          1.0F / std::sqrt(static_cast<float>(op.state.dim(2)))};
}

// A warp updates its strip of a head's state token by token, with the same instructions for a
// decode step, a chunk and a whole prompt, so that all of them give the same bits.

inline constexpr int delta_columns = 16;  ///< of a warp's strip
inline constexpr int delta_row_lanes = 8;
inline constexpr int delta_lane_columns = 4;

/// The lane's place: eight lanes share the rows of four columns.
__device__ __forceinline__ int delta_row_lane() {
  return static_cast<int>(threadIdx.x) % delta_row_lanes;
}
__device__ __forceinline__ int delta_first_column() {
  return static_cast<int>(threadIdx.x) % warp_size / delta_row_lanes * delta_lane_columns;
}
/// The one column whose v and y the lane has.
__device__ __forceinline__ int delta_own_column() {
  return delta_first_column() + delta_row_lane() % delta_lane_columns;
}

/// Eight sums over the eight lanes that share columns, in a fixed order; lane l of them gets sum l.
__device__ __forceinline__ float delta_row_sums(float (&values)[delta_row_lanes]) {
  const int lane = delta_row_lane();
#pragma unroll
  for (int half = delta_row_lanes / 2; half > 0; half /= 2) {
    const bool is_upper = (lane & half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float given = is_upper ? values[i] : values[i + half];
      const float kept = is_upper ? values[i + half] : values[i];
      values[i] = kept + shuffle_xor(given, half);
    }
  }
  return values[0];
}

/// Says where a warp's strip is in memory.
struct DeltaStrip {
  int rows, columns;  ///< columns of the head from the strip's first on
  int stride;         ///< from row to row
  bool is_whole;      ///< the tile has all rows, four columns are a vector, and the last ends one
};

/// Holds, of a token: how much of v is written, what is left of the state, and k'q'.
struct DeltaGates {
  float beta, keep, product;
};

/// V rows (a multiple of 4) of four columns per lane; four lines of a row lane follow each other,
/// so that the eight lanes read k and q from different banks.
template <int V>
struct DeltaTile {
  float cells[V][delta_lane_columns];

  __device__ __forceinline__ static int row_of(int i) {
    return i / 4 * 4 * delta_row_lanes + delta_row_lane() * 4 + i % 4;
  }

  /// Zeros where rows or columns end, or where `from` is null.
  template <typename S>
  __device__ __forceinline__ void load(const S* from, const DeltaStrip& strip) {
#pragma unroll
    for (auto& row : cells) {
#pragma unroll
      for (float& cell : row) cell = 0.0F;
    }
    if (from == nullptr) return;
    each_row(from, strip, [&](const S* place, int i, int columns) {
      if (strip.is_whole) return load_four(place, cells[i]);
#pragma unroll
      for (int j = 0; j < delta_lane_columns; ++j) {
        if (j < columns) cells[i][j] = to_float(place[j]);
      }
    });
  }
  template <typename S>
  __device__ __forceinline__ void store(S* to, const DeltaStrip& strip) const {
    each_row(to, strip, [&](S* place, int i, int columns) {
      if (strip.is_whole) return store_four(place, cells[i]);
#pragma unroll
      for (int j = 0; j < delta_lane_columns; ++j) {
        if (j < columns) place[j] = rounded<S>(cells[i][j]);
      }
    });
  }

  /// One token: k and q normalized, in shared memory with zeros past their rows, `value` of the
  /// lane's own column. The state moves on, as one of type S keeps it; y of the own column comes
  /// back in the upper four row lanes. With keeps, which are of its rows, q is multiplied by them.
  template <typename S, bool HasKeeps = false>
  __device__ __forceinline__ float advance(const float* k, const float* q, const DeltaGates& gates,
                                           float value, const float* keeps = nullptr) {
    float sums[2 * delta_lane_columns] = {};
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      float key[4], query[4];
      unpack(load16(k + row_of(i)), key);
      unpack(load16(q + row_of(i)), query);
      if constexpr (HasKeeps) {
        float keep[4];
        unpack(load16(keeps + row_of(i)), keep);
#pragma unroll
        for (int r = 0; r < 4; ++r) key[r] *= keep[r];
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int j = 0; j < delta_lane_columns; ++j) {
          sums[j] = fmaf(cells[i + r][j], key[r], sums[j]);
          sums[delta_lane_columns + j] =
              fmaf(cells[i + r][j], query[r], sums[delta_lane_columns + j]);
        }
      }
    }
    const float kept = HasKeeps ? delta_row_sums(sums) : gates.keep * delta_row_sums(sums);
    const float own = gates.beta * (value - kept);  // of use in the lower four lanes only
    float delta[delta_lane_columns];
#pragma unroll
    for (int j = 0; j < delta_lane_columns; ++j) {
      delta[j] = shuffle(own, j, full_warp, delta_row_lanes);
    }
    const float of_column =
        shuffle(own, delta_row_lane() % delta_lane_columns, full_warp, delta_row_lanes);
    // Or the compiler keeps all keys, and spills.
    if constexpr (V > 16 || HasKeeps) sync_warp();
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      float key[4], keep[4] = {gates.keep, gates.keep, gates.keep, gates.keep};
      unpack(load16(k + row_of(i)), key);
      if constexpr (HasKeeps) unpack(load16(keeps + row_of(i)), keep);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int j = 0; j < delta_lane_columns; ++j) {
          const float next = fmaf(cells[i + r][j], keep[r], key[r] * delta[j]);
          cells[i + r][j] = to_float(rounded<S>(next));
        }
      }
    }
    return fmaf(gates.product, of_column, kept);
  }

 private:
  /// Calls body(place, row of the tile, columns from the place on) for what the head has of the
  /// tile. The place moves along, so that no row's address is kept from the load to the store.
  template <typename S, typename Body>
  __device__ __forceinline__ static void each_row(S* first, const DeltaStrip& strip, Body&& body) {
    const int columns = strip.columns - delta_first_column();
    if (columns <= 0) return;
    S* place = first + row_of(0) * strip.stride + delta_first_column();
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (strip.is_whole || row_of(i) < strip.rows) body(place, i, columns);
      place += (i % 4 == 3 ? 4 * delta_row_lanes - 3 : 1) * strip.stride;
    }
  }
};

/// A token's q and k, as a warp makes them for the tile: `q` and `k` may be in shared memory; V*8
/// numbers of each are written, zeros past the rows, q times keep(i, row). Returns k'q' in every
/// lane.
template <int V, typename T, typename Out, typename Keep>
__device__ __forceinline__ float delta_normalize(const T* q, const T* k, int rows, float q_scale,
                                                 Out& q_out, Out& k_out, Keep&& keep) {
  constexpr int each = V * delta_row_lanes / warp_size;
  static_assert(each * warp_size == V * delta_row_lanes);
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  float query[each], key[each], q_squares = 0.0F, k_squares = 0.0F, products = 0.0F;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int row = i * warp_size + lane;
    query[i] = row < rows ? to_float(q[row]) : 0.0F;
    key[i] = row < rows ? to_float(k[row]) : 0.0F;
    q_squares = fmaf(query[i], query[i], q_squares);
    k_squares = fmaf(key[i], key[i], k_squares);
  }
  const float q_factor = 1.0F / sqrtf(warp_sum(q_squares) + delta_rule_eps) * q_scale;
  const float k_factor = 1.0F / sqrtf(warp_sum(k_squares) + delta_rule_eps);
#pragma unroll
  for (int i = 0; i < each; ++i) {
    query[i] *= q_factor;
    key[i] *= k_factor;
    products = fmaf(query[i], key[i], products);
    q_out[i * warp_size + lane] = query[i] * keep(i, i * warp_size + lane);
    k_out[i * warp_size + lane] = key[i];
  }
  return warp_sum(products);
}

/// Calls body with the number of rows per lane that an op needs, and whether it has decays per
/// channel, of which there are wide kernels only.
template <typename Body>
void visit_delta_rows(const DeltaRule& op, Body&& body) {
  const std::int64_t rows = op.state.dim(2);
  const auto call = [&]<int V>() {
    if (op.shape.per_channel && V >= 16)
      return body(std::integral_constant<int, V>{}, std::bool_constant<V >= 16>{});
    body(std::integral_constant<int, V>{}, std::false_type{});
  };
  if (rows <= 32 && !op.shape.per_channel) return call.template operator()<4>();
  if (rows <= 64 && !op.shape.per_channel) return call.template operator()<8>();
  if (rows <= 128) return call.template operator()<16>();
  call.template operator()<32>();
}

}  // namespace hyb::kernels::cuda
