#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/linear/coded_device.h"
#include "kernels/linear/row_tiles.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 8;
constexpr int block_threads = block_warps * warp_size;
constexpr int chunk_columns = static_cast<int>(CodedRowsShape::chunk_columns);
constexpr int groups = 4;  ///< of 32 columns in a chunk
constexpr int tiles_max = 8;

template <typename Y>
struct Params {
  Dense<bf16, Y> dense;
  CodedMatrix weight;
  int tiles;  ///< of 16 rows of W
  int split;  ///< warps of a tile, which share the chunks
};

/// How a lane takes a chunk of one row.
template <WeightCode Code>
struct Piece {
  static constexpr int vectors = Code == WeightCode::q4 ? 1 : 2;  ///< of 16 bytes
  static constexpr int scale_bytes = Code == WeightCode::fp8 ? 4 : 8;
  /// Chunks in flight: with 2 blocks on a processor 64 or 96 KB of codes.
  static constexpr int stages = Code == WeightCode::q4 ? 4 : 3;
  using Scales = std::conditional_t<Code == WeightCode::fp8, unsigned, uint2>;
};

/// A lane reads only what it copied itself: no barriers.
template <WeightCode Code>
struct Ring {
  SharedArray<SharedArray<SharedArray<uint4, warp_size>, 2 * Piece<Code>::vectors>,
              Piece<Code>::stages>
      codes;
  SharedArray<SharedArray<SharedArray<typename Piece<Code>::Scales, warp_size>, 2>,
              Piece<Code>::stages>
      scales;
};
template <WeightCode Code>
struct alignas(16) Shared {
  Levels levels;
  SharedArray<Ring<Code>, block_warps> rings;
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
__device__ __forceinline__ void load_words(Ring<Code>& ring, int stage, int row, int lane,
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
/// sum_k |x*W| of the exact sum, besides the roundings.
template <WeightCode Code, int TilesN, typename Y>
__global__ void __launch_bounds__(block_threads, TilesN < 4 ? 2 : 1)
    coded_kernel(const Params<Y> p) {
  constexpr int stages = Piece<Code>::stages, vectors = Piece<Code>::vectors;
  constexpr int chunk_bytes = vectors * 64;
  constexpr int scale_bytes = Piece<Code>::scale_bytes;
  auto& shared = dynamic_shared<Shared<Code>>();
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
      const int column = chunk * chunk_columns + group * 32 + lane % 4 * 2;
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
void run_tiles(Stream& stream, const Params<Y>& params) {
  launch(stream,
         {.blocks = dim3(pieces(params.tiles, block_warps / params.split),
                         pieces(params.dense.tokens, TilesN * 8)),
          .threads = block_threads,
          .shared_bytes = std::max(sizeof(Shared<Code>), sizeof(TileSums<TilesN, block_warps>)),
          .starts_early = true},
         coded_kernel<Code, TilesN, Y>, params);
}

template <WeightCode Code, typename Y>
void run_code(Stream& stream, const Dense<bf16, Y>& dense, const CodedMatrix& weight) {
  const int columns = dense.epilogue == Epilogue::silu_gated ? 8 : 16;
  const int tiles = static_cast<int>(pieces(dense.columns, columns));
  const Params<Y> params = {.dense = dense,
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
