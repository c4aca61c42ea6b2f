#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 8;
constexpr int block_threads = block_warps * warp_size;
constexpr int rows_of_a_warp = 4;
constexpr std::size_t pieces_max = 48;  ///< of a launch, whose parameters are at most 4 KiB

struct Params {
  std::byte *slot, *packed;
  SnapshotPiece pieces[pieces_max];
};
static_assert(sizeof(Params) <= 4096);

/// The blocks of a piece share the copy, in 16 bytes where both sides are aligned to them.
__device__ __forceinline__ void copy_window(std::byte* to, const std::byte* from,
                                            std::size_t bytes) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * block_threads;
  const std::size_t thread = static_cast<std::size_t>(blockIdx.x) * block_threads + threadIdx.x;
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  const std::size_t vectors = addresses % 16 == 0 ? bytes / 16 : 0;
  for (std::size_t i = thread; i < vectors; i += step) {
    store16(to + 16 * i, load16(from + 16 * i));
  }
  for (std::size_t i = 16 * vectors + thread; i < bytes; i += step) to[i] = from[i];
}

/// Calls body(row, state, scale, values) for the rows of a piece that are this warp's.
template <typename T, typename Body>
__device__ __forceinline__ void each_row(const Params& p, const SnapshotPiece& piece, Body&& body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_warps;
  for (std::int64_t row = blockIdx.x * block_warps + threadIdx.x / warp_size; row < piece.rows;
       row += step) {
    body(reinterpret_cast<T*>(p.slot + piece.slot_state) + row * piece.columns,
         reinterpret_cast<bf16*>(p.packed + piece.packed_scales) + row,
         reinterpret_cast<std::int8_t*>(p.packed + piece.packed_values) + row * piece.columns);
  }
}

/// Says whether all rows of a piece can be read in 16 bytes and written in as many elements.
template <typename T>
__device__ __forceinline__ bool has_vectors(const Params& p, const SnapshotPiece& piece) {
  return reinterpret_cast<std::uintptr_t>(p.slot + piece.slot_state) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(p.packed + piece.packed_values) % vector_size<T> == 0 &&
         piece.columns % vector_size<T> == 0;
}

__device__ __forceinline__ unsigned magnitude(float value) {
  return std::bit_cast<unsigned>(value) & 0x7fffffffU;
}

/// An element below 2^-126 counts as zero: the host flushes it, a card does not.
__device__ __forceinline__ int quantized(float value, float scale) {
  return magnitude(value) < 0x00800000U ? 0 : static_cast<int>(rintf(value / scale));
}

template <bool Aligned, typename T>
__device__ __forceinline__ void store_quantized(std::int8_t* to, int left, float scale,
                                                const float (&values)[vector_size<T>]) {
  int whole[vector_size<T>];
  for (int j = 0; j < vector_size<T>; ++j) {
    whole[j] = std::isnan(scale) ? 0 : quantized(values[j], scale);
  }
  if constexpr (Aligned) {
    unsigned words[vector_size<T> / 4] = {};
    for (int j = 0; j < vector_size<T>; ++j) {
      words[j / 4] |= (static_cast<unsigned>(whole[j]) & 0xffU) << j % 4 * 8;
    }
    for (int j = 0; j < vector_size<T> / 4; ++j) reinterpret_cast<unsigned*>(to)[j] = words[j];
  } else {
    for (int j = 0; j < vector_size<T> && j < left; ++j) to[j] = static_cast<std::int8_t>(whole[j]);
  }
}

template <typename T, bool Aligned>
__device__ __forceinline__ void pack_row(const T* state, bf16* scale, std::int8_t* values,
                                         int columns) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  constexpr int step = vector_size<T> * warp_size;
  unsigned largest = 0;
  for (int i = lane * vector_size<T>; i < columns; i += step) {
    float elements[vector_size<T>];
    load_values<Aligned>(state + i, columns - i, elements);
    for (const float element : elements) largest = std::max(largest, magnitude(element));
  }
  const bf16 rounded_up = snapshot_scale(reduce_max(largest));
  if (lane == 0) *scale = rounded_up;
  for (int i = lane * vector_size<T>; i < columns; i += step) {
    float elements[vector_size<T>];
    load_values<Aligned>(state + i, columns - i, elements);
    store_quantized<Aligned, T>(values + i, columns - i, snapshot_scale_value(rounded_up),
                                elements);
  }
}

/// grid (shares of the rows, pieces): a warp owns a row. The bytes of the plain loop.
template <typename T>
__global__ void __launch_bounds__(block_threads) pack_snapshot_kernel(const Params p) {
  const SnapshotPiece& piece = p.pieces[blockIdx.y];
  start_next_and_wait();
  copy_window(p.packed + piece.packed_window, p.slot + piece.slot_window, piece.window_bytes);
  const bool is_aligned = has_vectors<T>(p, piece);
  const int columns = static_cast<int>(piece.columns);
  each_row<const T>(p, piece, [&](const T* state, bf16* scale, std::int8_t* values) {
    if (is_aligned) {
      pack_row<T, true>(state, scale, values, columns);
    } else {
      pack_row<T, false>(state, scale, values, columns);
    }
  });
}

/// Returns what the host's multiplication makes of it, a NaN's bits too.
template <typename T>
__device__ __forceinline__ T unpacked(std::int8_t value, bf16 scale) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (std::isnan(to_float(scale))) return scale;
  } else {
    if (std::isnan(to_float(scale))) return to_float(scale);
  }
  return rounded<T>(static_cast<float>(value) * to_float(scale));
}

/// grid (shares of the rows, pieces): a warp owns a row. The bytes of the plain loop.
template <typename T>
__global__ void __launch_bounds__(block_threads) unpack_snapshot_kernel(const Params p) {
  const SnapshotPiece& piece = p.pieces[blockIdx.y];
  start_next_and_wait();
  copy_window(p.slot + piece.slot_window, p.packed + piece.packed_window, piece.window_bytes);
  const bool is_aligned = has_vectors<T>(p, piece);
  const int columns = static_cast<int>(piece.columns);
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  each_row<T>(p, piece, [&](T* state, const bf16* scale, const std::int8_t* values) {
    if (is_aligned) {
      for (int i = lane * vector_size<T>; i < columns; i += warp_size * vector_size<T>) {
        alignas(16) T elements[vector_size<T>];
        for (int j = 0; j < vector_size<T>; ++j) elements[j] = unpacked<T>(values[i + j], *scale);
        store16(state + i, *reinterpret_cast<const uint4*>(elements));
      }
    } else {
      for (int i = lane; i < columns; i += warp_size) state[i] = unpacked<T>(values[i], *scale);
    }
  });
}

void run(Stream& stream, std::span<const SnapshotPiece> pieces_left, const Tensor& slot,
         const Tensor& packed, void (*kernel)(Params)) {
  while (!pieces_left.empty()) {
    const std::size_t count = std::min(pieces_left.size(), pieces_max);
    Params params = {slot.as<std::byte>(), packed.as<std::byte>(), {}};
    std::copy_n(pieces_left.begin(), count, params.pieces);
    std::int64_t rows = 1;  // a window alone takes a block, too
    for (const SnapshotPiece& piece : pieces_left.first(count)) rows = std::max(rows, piece.rows);
    launch(
        stream,
        {.blocks = dim3(pieces(rows, block_warps * rows_of_a_warp), static_cast<unsigned>(count)),
         .threads = block_threads},
        kernel, params);
    pieces_left = pieces_left.subspan(count);
  }
}

}  // namespace

void pack_snapshot(Stream& stream, const PackSnapshot& op) {
  visit_float(op.state_dtype, [&]<typename T>(Tag<T>) {
    run(stream, op.pieces, op.slot, op.packed, pack_snapshot_kernel<T>);
  });
}

void unpack_snapshot(Stream& stream, const UnpackSnapshot& op) {
  visit_float(op.state_dtype, [&]<typename T>(Tag<T>) {
    run(stream, op.pieces, op.slot, op.packed, unpack_snapshot_kernel<T>);
  });
}

}  // namespace hyb::kernels::cuda
