#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/fp8.h"

namespace hyb::kernels::cuda {

/// Queries, or a tile's keys or values: 16 bytes at a time permuted within a row, so that the 8
/// rows of a matrix lie in different banks.
template <int HeadDim, int Rows>
struct RowTile {
  SharedArray<SharedArray<bf16, HeadDim>, Rows> rows;

  __device__ __forceinline__ bf16* at(int row, int eight) {
    return &rows[row][(eight ^ (row & 7)) * 8];
  }
};

template <typename S>
using KeyTile = RowTile<S::head_dim, tile_keys>;

/// The last tiles of keys and values, on their way or there: item 2t is the keys of a block's tile
/// t, item 2t + 1 its values. They come in pieces of 16 bytes.
template <typename S>
struct PlainRing {
  static constexpr int pieces = S::head_dim / 8;  ///< of a key
  SharedArray<KeyTile<S>, S::stages> tiles;

  __device__ __forceinline__ void* at(int item, int key, int piece) {
    return tiles[item % S::stages].at(key, piece);
  }
  /// The thread's own pieces of an item have arrived; behind the block's next barrier all have.
  __device__ __forceinline__ void arrive(int) {}
  __device__ __forceinline__ KeyTile<S>& tile(int item) { return tiles[item % S::stages]; }
};

/// The same of codes: a thread widens the pieces that it has asked for itself. With one tile to
/// widen to, no thread may still read an item when another one arrives; with two, the one before.
template <typename S>
struct CodedRing {
  static constexpr int pieces = S::head_dim / 16;
  SharedArray<KeyTile<S>, S::wide_tiles> tiles;
  SharedArray<SharedArray<SharedArray<e4m3, S::head_dim>, tile_keys>, S::stages> codes;

  __device__ __forceinline__ void* at(int item, int key, int piece) {
    return &codes[item % S::stages][key][piece * 16];
  }
  __device__ __forceinline__ void arrive(int item) {
    KeyTile<S>& to = tile(item);
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < tile_keys * pieces; i += S::threads) {
      const int key = i / pieces, piece = i % pieces;
      uint4 halves[2];
      widen(load16(at(item, key, piece)), halves[0], halves[1]);
      store16(to.at(key, 2 * piece), halves[0]);
      store16(to.at(key, 2 * piece + 1), halves[1]);
    }
  }
  /// Addresses within it are made anew for every item: there are no registers to hold them.
  __device__ __forceinline__ KeyTile<S>& tile(int item) {
    return tiles[hidden(item % S::wide_tiles)];
  }
};

template <typename S>
using KeyRing = std::conditional_t<S::is_coded, CodedRing<S>, PlainRing<S>>;

}  // namespace hyb::kernels::cuda
