#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/linear/linear.cuh"

/// Tiles of 16 rows of W times few tokens, a warp's: what the routes that take W as the operand
/// with 16 rows share.
namespace hyb::kernels::cuda {

/// Column of y that row `row` of a tile's low half has; the high half has the next 8 columns,
/// or their ups with a gate.
template <typename Y>
__device__ __forceinline__ int column_of(const Dense<bf16, Y>& p, int tile, int row) {
  return tile * (p.is_gated ? 8 : 16) + row;
}

/// Rows of W of the lane's two rows of a tile; past the end they are the last ones again.
struct TileRows {
  int low, high;
};
template <typename Y>
__device__ __forceinline__ TileRows rows_of(const Dense<bf16, Y>& p, int tile) {
  const int column = column_of(p, tile, static_cast<int>(threadIdx.x) % warp_size / 4);
  const int low = column < p.columns ? column : p.columns - 1;
  if (p.is_gated) return {low, low + p.columns};
  return {low, column + 8 < p.outputs ? column + 8 : p.outputs - 1};
}

template <typename Y>
__device__ __forceinline__ void write_pair(const Dense<bf16, Y>& p, int tile, int token, float low,
                                           float high) {
  const int column = column_of(p, tile, static_cast<int>(threadIdx.x) % warp_size / 4);
  write(p, token, column, low, high);
  if (!p.is_gated) write(p, token, column + 8, high, 0.0F);
}

/// Warps' sums of TilesN times 8 tokens, in the place of their pieces of W.
template <int TilesN, int Warps>
struct TileSums {
  SharedArray<SharedArray<SharedArray<float, warp_size>, TilesN * 4>, Warps> of;
};

/// Writes 8*TilesN tokens of a tile, from first_token on, as mma_bf16 leaves them in its `split`
/// warps, which are adjacent; where they are several, their sums are added up in their order.
/// By the whole block, which has read all that it will of W.
template <int Warps, int TilesN, typename Y>
__device__ __forceinline__ void write_tile(const Dense<bf16, Y>& p, int tile, int first_token,
                                           int split, const float (&sums)[TilesN][4]) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size, member = warp % split;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const auto token_of = [&](int i) { return first_token + i / 2 * 8 + lane % 4 * 2 + i % 2; };
  if (split == 1) {
#pragma unroll
    for (int i = 0; i < TilesN * 2; ++i) {
      write_pair(p, tile, token_of(i), sums[i / 2][i % 2], sums[i / 2][i % 2 + 2]);
    }
    return;
  }
  cp_async_wait<0>();
  sync_block();  // no copy is in flight, and all are done with what the sums replace
  auto& partial = dynamic_shared<TileSums<TilesN, Warps>>().of;
#pragma unroll
  for (int i = 0; i < TilesN * 4; ++i) partial[warp][i][lane] = sums[i / 4][i % 4];
  sync_block();
  for (int i = member; i < TilesN * 2; i += split) {
    float sum[2] = {};
    for (int j = warp - member; j < warp - member + split; ++j) {
      sum[0] += partial[j][i / 2 * 4 + i % 2][lane];
      sum[1] += partial[j][i / 2 * 4 + i % 2 + 2][lane];
    }
    write_pair(p, tile, token_of(i), sum[0], sum[1]);
  }
}

/// As few of `warps` warps on a tile as keep every processor busy, a power of two; not by the row
/// count, which no sum may depend on.
inline int warps_of_tile(const Stream& stream, int tiles, int steps, int warps) {
  int split = 1;
  while (split < warps && split < steps &&
         (tiles * split + warps - 1) / warps < stream.processors()) {
    split *= 2;
  }
  return split;
}

namespace {

constexpr int block_warps = 8;
constexpr int block_threads = block_warps * warp_size;
constexpr int skinny_stages = 3;   ///< steps in flight: with 2 blocks on a processor 96 KB
constexpr int k_step = 64;         ///< two halves of 32
constexpr int pieces_of_step = 4;  ///< of 16 bytes: rows l/4 and l/4+8 of the tile, twice

template <typename Y>
struct Params {
  Dense<bf16, Y> dense;
  int tiles;  ///< of 16 rows of W
  int split;  ///< warps of a tile, which share the steps
};

/// A lane reads only what it copied itself: no barriers.
using Ring = SharedArray<SharedArray<SharedArray<uint4, warp_size>, pieces_of_step>, skinny_stages>;
struct Shared {
  SharedArray<Ring, block_warps> weights;
};

/// A matrix product for few tokens: W is the operand with 16 rows, x the one with 8 columns. A lane
/// holds 8 neighbours in k of its rows of both, 4 to each of two instructions: the k of an element
/// is the same in W and x, and that is all a product needs. So W goes from memory to
/// its registers, past the ring, and x through the first-level cache, without barriers.
/// `split` warps share a tile's steps; sums over k are in one order for every row count. Within
/// (K+4) * 2^-23 * |scale| * sum_k |x*W| of the exact sum, not counting the roundings.
template <int TilesN, typename Y>
__global__ void __launch_bounds__(block_threads, 2) skinny_kernel(const Params<Y> p) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int member = warp % p.split, inner = p.dense.inner;
  const int tile = static_cast<int>(blockIdx.x) * (block_warps / p.split) + warp / p.split;
  auto& ring = dynamic_shared<Shared>().weights[warp];
  const TileRows rows = rows_of(p.dense, tile);
  const auto* const weight = static_cast<const bf16*>(p.dense.weight) + lane % 4 * 8;
  const bf16* const low_row = weight + static_cast<std::int64_t>(rows.low) * inner;
  const bf16* const high_row = weight + static_cast<std::int64_t>(rows.high) * inner;
  const int k_end = tile < p.tiles ? inner : 0;
  const auto copy = [&](int k, int stage) {
#pragma unroll
    for (int half = 0; half < 2; ++half, k += 32) {
      const bool is_there = k + lane % 4 * 8 < k_end;
      cp_async16(&ring[stage][half * 2][lane], low_row + (is_there ? k : 0), is_there);
      cp_async16(&ring[stage][half * 2 + 1][lane], high_row + (is_there ? k : 0), is_there);
    }
    cp_async_commit();
  };

  let_next_kernel_start();
  for (int i = 0; i < skinny_stages; ++i) copy((member + i * p.split) * k_step, i);
  wait_for_previous_kernel();

  float sums[TilesN][4] = {};
  int stage = 0;
  for (int k = member * k_step; k < k_end; k += p.split * k_step) {
    cp_async_wait<skinny_stages - 1>();
#pragma unroll(TilesN < 8 ? 2 : 1)
    for (int half = 0; half < 2; ++half) {
      const uint4 w = load16(&ring[stage][half * 2][lane]);
      const uint4 v = load16(&ring[stage][half * 2 + 1][lane]);
      const int own = k + half * 32 + lane % 4 * 8;
      uint4 x[TilesN];
#pragma unroll
      for (int n = 0; n < TilesN; ++n) {
        const int token = std::min(n * 8 + lane / 4, p.dense.tokens - 1);
        x[n] = {};
        if (own < inner) x[n] = load16(p.dense.x + token * p.dense.x_stride + own);
      }
#pragma unroll
      for (int n = 0; n < TilesN; ++n) {
        mma_bf16(sums[n], {w.x, v.x, w.y, v.y}, x[n].x, x[n].y);
        mma_bf16(sums[n], {w.z, v.z, w.w, v.w}, x[n].z, x[n].w);
      }
    }
    copy(k + skinny_stages * p.split * k_step, stage);
    stage = stage + 1 == skinny_stages ? 0 : stage + 1;
  }

  write_tile<block_warps>(p.dense, tile, 0, p.split, sums);
}

template <int TilesN, typename Y>
void run_tiles(Stream& stream, const Params<Y>& params) {
  launch(stream,
         {.blocks = pieces(params.tiles, block_warps / params.split),
          .threads = block_threads,
          .shared_bytes = std::max(sizeof(Shared), sizeof(TileSums<TilesN, block_warps>)),
          .starts_early = true},
         skinny_kernel<TilesN, Y>, params);
}

template <typename Y>
void run(Stream& stream, const Dense<bf16, Y>& dense) {
  const int columns = dense.is_gated ? 8 : 16;
  const int tiles = static_cast<int>(pieces(dense.columns, columns));
  const int steps = (dense.inner + k_step - 1) / k_step;
  const Params<Y> params = {
      .dense = dense, .tiles = tiles, .split = warps_of_tile(stream, tiles, steps, block_warps)};
  if (dense.tokens <= 16) return run_tiles<2>(stream, params);
  if (dense.tokens <= 32) return run_tiles<4>(stream, params);
  run_tiles<skinny_tokens_max / 8>(stream, params);
}

}  // namespace

void run_skinny(Stream& stream, const Dense<bf16, bf16>& dense) { run(stream, dense); }
void run_skinny(Stream& stream, const Dense<bf16, float>& dense) { run(stream, dense); }

namespace {

constexpr int chunk_columns = static_cast<int>(CodedRowsShape::chunk_columns);
constexpr int groups = static_cast<int>(CodedRowsShape::groups);
constexpr int group_columns = static_cast<int>(CodedRowsShape::group_columns);
constexpr int chunk_lanes = 4;  ///< that share a chunk of a row
constexpr int tiles_max = 8;

template <typename Y>
struct CodedParams {
  Dense<bf16, Y> dense;
  CodedMatrix weight;
  int tiles;  ///< of 16 rows of W
  int split;  ///< warps of a tile, which share the chunks
};

/// How a lane takes a chunk of one row.
template <WeightCode Code>
struct Piece {
  static constexpr int chunk_bytes = static_cast<int>(CodedRowsShape::chunk_bytes(Code));
  static constexpr int vectors = chunk_bytes / (chunk_lanes * 16);  ///< of 16 bytes
  static constexpr int scale_bytes = static_cast<int>(CodedRowsShape::chunk_scale_bytes(Code));
  /// Chunks in flight: with 2 blocks on a processor 64 or 96 KB of codes.
  static constexpr int stages = Code == WeightCode::q4 ? 4 : 3;
  using Scales = std::conditional_t<Code == WeightCode::fp8, unsigned, uint2>;
};

/// A lane reads only what it copied itself: no barriers.
template <WeightCode Code>
struct CodedRing {
  SharedArray<SharedArray<SharedArray<uint4, warp_size>, 2 * Piece<Code>::vectors>,
              Piece<Code>::stages>
      codes;
  SharedArray<SharedArray<SharedArray<typename Piece<Code>::Scales, warp_size>, 2>,
              Piece<Code>::stages>
      scales;
};
template <WeightCode Code>
struct alignas(16) CodedShared {
  Levels levels;
  SharedArray<CodedRing<Code>, block_warps> rings;
};

__device__ __forceinline__ float scale_of(unsigned scales, int) {
  return std::bit_cast<float>(scales);
}
__device__ __forceinline__ float scale_of(uint2 scales, int group) {
  const unsigned pair = group < 2 ? scales.x : scales.y;
  return std::bit_cast<float>(group % 2 == 0 ? pair << 16 : pair & 0xffff0000U);
}

/// The pairs of a group, from the lane's words of a row.
template <WeightCode Code>
__device__ __forceinline__ void read_pairs(const Levels& levels, int lane,
                                           const unsigned (&words)[Piece<Code>::vectors * 4],
                                           int group, std::uint32_t (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Code == WeightCode::q4) {
      pairs[i] = levels.of(words[group] >> (8 * i) & 255U, lane);
    } else {
      const unsigned two = words[group * 2 + i / 2] >> (16 * (i % 2));
      const std::uint32_t first = levels.of(two & 255U, lane);
      pairs[i] = (first & 0xffffU) | (levels.of(two >> 8 & 255U, lane) & 0xffff0000U);
    }
  }
}

template <WeightCode Code>
__device__ __forceinline__ void load_words(CodedRing<Code>& ring, int stage, int row, int lane,
                                           unsigned (&words)[Piece<Code>::vectors * 4]) {
#pragma unroll
  for (int v = 0; v < Piece<Code>::vectors; ++v) {
    const uint4 vector = load16(&ring.codes[stage][row * Piece<Code>::vectors + v][lane]);
    words[v * 4] = vector.x;
    words[v * 4 + 1] = vector.y;
    words[v * 4 + 2] = vector.z;
    words[v * 4 + 3] = vector.w;
  }
}

/// A warp owns 16 rows of W times 8*TilesN tokens, or its share of their chunks. W goes from memory
/// past the ring and the table of levels to the registers of the matrix instructions, x through the
/// first-level cache. The products of 32 columns are summed without their scale, then added to the
/// sum with it: in ascending k, one order for every row count. Within (K+4) * 2^-23 * |scale| *
/// sum_k |x*W| of the exact sum, not counting the roundings.
template <WeightCode Code, int TilesN, typename Y>
__global__ void __launch_bounds__(block_threads, TilesN < 4 ? 2 : 1)
    coded_kernel(const CodedParams<Y> p) {
  constexpr int stages = Piece<Code>::stages, vectors = Piece<Code>::vectors;
  constexpr int chunk_bytes = Piece<Code>::chunk_bytes;
  constexpr int scale_bytes = Piece<Code>::scale_bytes;
  auto& shared = dynamic_shared<CodedShared<Code>>();
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int member = warp % p.split, inner = p.dense.inner;
  const int tile = static_cast<int>(blockIdx.x) * (block_warps / p.split) + warp / p.split;
  const int first_token = static_cast<int>(blockIdx.y) * TilesN * 8;
  auto& ring = shared.rings[warp];
  const TileRows rows = rows_of(p.dense, tile);
  const int chunk_end = tile < p.tiles ? p.weight.chunks : 0;
  const auto copy_row = [&](int chunk, int stage, int row, int index) {
    const bool is_there = chunk < chunk_end;
    const std::int64_t at =
        static_cast<std::int64_t>(row) * p.weight.chunks + (is_there ? chunk : 0);
    const std::byte* const codes = p.weight.codes + at * chunk_bytes + lane % 4 * (vectors * 16);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      cp_async16(&ring.codes[stage][index * vectors + v][lane], codes + v * 16, is_there);
    }
    cp_async<scale_bytes>(&ring.scales[stage][index][lane], p.weight.scales + at * scale_bytes,
                          is_there);
  };
  const auto copy = [&](int chunk, int stage) {
    copy_row(chunk, stage, rows.low, 0);
    copy_row(chunk, stage, rows.high, 1);
    cp_async_commit();
  };

  let_next_kernel_start();
  for (int i = 0; i < stages; ++i) copy(member + i * p.split, i);
  shared.levels.template fill<Code>();
  sync_block();
  wait_for_previous_kernel();

  float sums[TilesN][4] = {};
  int stage = 0;
  for (int chunk = member; chunk < chunk_end; chunk += p.split) {
    cp_async_wait<stages - 1>();
    unsigned low_words[vectors * 4], high_words[vectors * 4];
    load_words<Code>(ring, stage, 0, lane, low_words);
    load_words<Code>(ring, stage, 1, lane, high_words);
    const auto low_scales = ring.scales[stage][0][lane];
    const auto high_scales = ring.scales[stage][1][lane];
    copy(chunk + stages * p.split, stage);
    stage = stage + 1 == stages ? 0 : stage + 1;
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      std::uint32_t low[4], high[4];
      read_pairs<Code>(shared.levels, lane, low_words, group, low);
      read_pairs<Code>(shared.levels, lane, high_words, group, high);
      const int column = chunk * chunk_columns + group * group_columns + lane % 4 * 2;
      const float low_scale = scale_of(low_scales, group);
      const float high_scale = scale_of(high_scales, group);
#pragma unroll
      for (int n = 0; n < TilesN; ++n) {
        const int token = std::min(first_token + n * 8 + lane / 4, p.dense.tokens - 1);
        const bf16* const x = p.dense.x + token * p.dense.x_stride + column;
        std::uint32_t pairs[4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (column + i * 8 < inner) pairs[i] = *reinterpret_cast<const std::uint32_t*>(x + i * 8);
        }
        float part[4] = {};
        mma_bf16(part, {low[0], high[0], low[1], high[1]}, pairs[0], pairs[1]);
        mma_bf16(part, {low[2], high[2], low[3], high[3]}, pairs[2], pairs[3]);
        sums[n][0] += low_scale * part[0];
        sums[n][1] += low_scale * part[1];
        sums[n][2] += high_scale * part[2];
        sums[n][3] += high_scale * part[3];
      }
    }
  }

  write_tile<block_warps>(p.dense, tile, first_token, p.split, sums);
}

template <WeightCode Code, int TilesN, typename Y>
void run_tiles(Stream& stream, const CodedParams<Y>& params) {
  launch(
      stream,
      {.blocks = dim3(pieces(params.tiles, block_warps / params.split),
                      pieces(params.dense.tokens, TilesN * 8)),
       .threads = block_threads,
       .shared_bytes = std::max(sizeof(CodedShared<Code>), sizeof(TileSums<TilesN, block_warps>)),
       .starts_early = true},
      coded_kernel<Code, TilesN, Y>, params);
}

template <WeightCode Code, typename Y>
void run_code(Stream& stream, const Dense<bf16, Y>& dense, const CodedMatrix& weight) {
  const int columns = dense.is_gated ? 8 : 16;
  const int tiles = static_cast<int>(pieces(dense.columns, columns));
  const CodedParams<Y> params = {.dense = dense,
                                 .weight = weight,
                                 .tiles = tiles,
                                 .split = warps_of_tile(stream, tiles, weight.chunks, block_warps)};
  if (dense.tokens <= 8) return run_tiles<Code, 1>(stream, params);
  if (dense.tokens <= 16) return run_tiles<Code, 2>(stream, params);
  if (dense.tokens <= 32) return run_tiles<Code, 4>(stream, params);
  run_tiles<Code, tiles_max>(stream, params);
}

template <typename Y>
void run(Stream& stream, const Dense<bf16, Y>& dense, const CodedMatrix& weight, WeightCode code) {
  visit_code(code, [&]<WeightCode Code>() { run_code<Code>(stream, dense, weight); });
}

}  // namespace

void run_codes(Stream& stream, const Dense<bf16, bf16>& dense, const CodedMatrix& weight,
               WeightCode code) {
  run(stream, dense, weight, code);
}
void run_codes(Stream& stream, const Dense<bf16, float>& dense, const CodedMatrix& weight,
               WeightCode code) {
  run(stream, dense, weight, code);
}

}  // namespace hyb::kernels::cuda
