#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/linear/input_rows.h"
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
/// warps, which are adjacent; where they are several, their sums are added up in their order. The
/// whole block calls this, once it has read all that it needs of W.
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

/// Puts as few of `warps` warps on a tile as keep every processor busy, a power of two; not by the
/// row count, which no sum may depend on.
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
constexpr int k_step = half_columns;  ///< two groups of 32

/// Steps in flight: with 2 blocks on a processor 96 KB, also in 12 bits; of codes 48 to 82 KB.
template <WeightCode Code>
constexpr int stages = Code == WeightCode::plain                 ? 3
                       : Code == blocks4 || Code == blocks_nvfp4 ? 5
                       : has_nibbles(Code)                       ? 6
                                                                 : 4;

template <typename Y>
struct Params {
  Dense<bf16, Y> dense;
  DenseNorm norm;
  int tiles;  ///< of 16 rows of W
  int split;  ///< warps of a tile, which share the steps
};

/// Holds what a lane has in flight of rows l/4 and l/4+8 of the tile; it reads only what it copied
/// itself: no barriers.
template <WeightCode Code>
struct Ring {
  template <typename Word>
  using Of = SharedArray<SharedArray<SharedArray<Word, warp_size>, 2>, stages<Code>>;
  struct None {};
  Of<typename LaneCodes<Code>::Vector> codes;
  Of<ScaleWords<Code>> scales;
  std::conditional_t<has_upper_bits<Code>, Of<std::uint32_t>, None> upper;
};
template <>
struct Ring<WeightCode::plain> {  ///< each row's two groups
  SharedArray<SharedArray<SharedArray<uint4, warp_size>, 4>, stages<WeightCode::plain>> pieces;
};

template <>
struct Ring<WeightCode::bits12> {
  static constexpr int count = stages<WeightCode::bits12>;
  SharedArray<SharedArray<SharedArray<uint4, warp_size>, 2>, count> rest;
  SharedArray<SharedArray<SharedArray<uint2, warp_size>, 2>, count> codes;
};

template <WeightCode Code>
struct Shared {
  SharedArray<Ring<Code>, block_warps> rings;
};

/// The lane's part of a tile's rows of W. Copied steps are past the ring when they are taken.
template <WeightCode Code, typename Y>
class Rows {
 public:
  __device__ Rows(const Dense<bf16, Y>& p, Ring<Code>& ring, const TileRows& rows, int k_end)
      : ring_(ring),
        traits_(p.coded.traits),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        k_end_(k_end) {
    const int row[2] = {rows.low, rows.high};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (Code == WeightCode::plain) {
        values_[i] = static_cast<const bf16*>(p.weight) +
                     static_cast<std::int64_t>(row[i]) * p.inner + lane_ % 4 * 8;
      } else if constexpr (Code == WeightCode::bits12) {
        codes_[i] = p.coded.template codes_of<Code>(row[i]);
      } else {
        codes_[i] = p.coded.template codes_of<Code>(row[i]) + lane_ % 4 * LaneCodes<Code>::bytes;
        scales_[i] = p.coded.template scales_of<Code>(row[i]);
      }
    }
  }

  /// Prepares what only taking needs, after the first copies have been started.
  __device__ __forceinline__ void start(const Dense<bf16, Y>& p, const TileRows& rows) {
    if constexpr (Code == WeightCode::bits12) {
      bits12_.set(0, load8(p.coded.template scales_of<Code>(rows.low)));
      bits12_.set(1, load8(p.coded.template scales_of<Code>(rows.high)));
      bits12_.start(p.coded.patches);
    }
  }

  __device__ __forceinline__ void copy(int k, int stage) {
    if constexpr (Code == WeightCode::bits12) {
      const bool is_there = k < k_end_;
      const std::int64_t at = is_there ? k / half_columns * Bits12RowsShape::half_bytes : 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::byte* const half = codes_[i] + at;
        cp_async16(&ring_.rest[stage][i][lane_], half + lane_ % 4 * 16, is_there);
        cp_async<8>(&ring_.codes[stage][i][lane_], half + Bits12RowsShape::codes_at + lane_ % 4 * 8,
                    is_there);
      }
    } else if constexpr (Code == WeightCode::plain) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = k + i / 2 * 32;
        const bool is_there = at + lane_ % 4 * 8 < k_end_;
        cp_async16(&ring_.pieces[stage][i][lane_], values_[i % 2] + (is_there ? at : 0), is_there);
      }
    } else {
      const bool is_there = k < k_end_;
      const unsigned half = is_there ? static_cast<unsigned>(k) / half_columns : 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        copy_codes(&ring_.codes[stage][i][lane_], codes_[i] + half * LaneCodes<Code>::half_bytes,
                   is_there);
        copy_scales<Code>(&ring_.scales[stage][i][lane_], scales_[i], static_cast<int>(half),
                          traits_, is_there);
        if constexpr (has_upper_bits<Code>) {
          const int word = upper_word<Code>(traits_, static_cast<int>(half), lane_ % 4);
          cp_async<4>(&ring_.upper[stage][i][lane_], scales_[i] + word * 4, is_there);
        }
      }
    }
    cp_async_commit();
  }

  /// Both rows' 8 columns of a group, from column `own` on, of the half that k is in.
  __device__ __forceinline__ void take(int stage, int k, int group, int own, uint4 (&of)[2]) {
    const auto half = static_cast<int>(static_cast<unsigned>(k) / half_columns);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (Code == WeightCode::plain) {
        of[i] = load16(&ring_.pieces[stage][group * 2 + i][lane_]);
      } else if constexpr (Code == WeightCode::bits12) {
        const uint4 rest = load16(&ring_.rest[stage][i][lane_]);
        const uint2 codes = load8(&ring_.codes[stage][i][lane_]);
        of[i] = bits12_.widen(i, group == 0 ? uint2{rest.x, rest.y} : uint2{rest.z, rest.w},
                              group == 0 ? codes.x : codes.y);
      } else {
        uint4 codes = load_codes(&ring_.codes[stage][i][lane_]);
        if constexpr (has_upper_bits<Code>) {
          codes.z = upper_of_half<Code>(ring_.upper[stage][i][lane_], half);
        }
        of[i] = levels_of_group<Code>(codes, group, traits_);
        scales_of_[i] =
            group_scales<Code>(load_scales(&ring_.scales[stage][i][lane_]), half, group, traits_);
      }
    }
    if constexpr (Code == WeightCode::bits12) bits12_.patch(own, of);
  }
  /// Adds the products of x with what take() gave.
  __device__ __forceinline__ void multiply(const uint4 (&of)[2], uint4 x, float (&sums)[4]) const {
    const auto& [low, high] = of;
    if constexpr (Code == WeightCode::plain || Code == WeightCode::bits12) {
      mma_bf16(sums, {low.x, high.x, low.y, high.y}, x.x, x.y);
      mma_bf16(sums, {low.z, high.z, low.w, high.w}, x.z, x.w);
    } else {
      add_group<Code>(low, high, scales_of_, x, sums);
      if (has_mins<Code>(traits_)) subtract_mins(scales_of_, sums_of_x(ones_, x), sums);
    }
  }

 private:
  Ring<Code>& ring_;
  const bf16* values_[2];
  const std::byte *codes_[2], *scales_[2];
  const GgufRowTraits& traits_;
  GroupScales scales_of_[2];  ///< of the group that was taken
  Ones ones_;
  Bits12LaneRows<2> bits12_;
  int lane_, k_end_;
};

/// The rows of x of the lane's tokens, one of each tile; with a norm all are normed to `normed`, in
/// shared memory, by the whole block.
template <bool HasNorm, int TilesN, typename Y>
__device__ __forceinline__ void find_x_rows(const Params<Y>& p, bf16* normed,
                                            const bf16* (&rows)[TilesN]) {
  const bf16* x = p.dense.x;
  std::int64_t stride = p.dense.x_stride;
  if constexpr (HasNorm) {
    stage_all_rows<block_warps, 2>(normed, x, stride, p.dense.tokens, p.dense.inner, p.norm);
    x = normed;
    stride = p.dense.inner;
  }
  const int of_tile = static_cast<int>(threadIdx.x) % warp_size / 4;
#pragma unroll
  for (int n = 0; n < TilesN; ++n) {
    rows[n] = x + std::min(n * 8 + of_tile, p.dense.tokens - 1) * stride;
  }
}

/// A matrix product for few tokens: W is the operand with 16 rows, x the one with 8 columns. A lane
/// holds 8 neighbours in k of its rows of both, 4 to each of two instructions: the k of an element
/// is the same in W and x, and that is all a product needs. So W goes from memory to
/// its registers, past the ring and the decoder, and x through the first-level cache, without
/// barriers. Codes are multiplied as their levels; the sum of a group of 32 columns meets its scale
/// in f32, and the sum of x its minimum; what has 12 bits is widened to bf16, and has its bits.
/// With a norm each block norms the rows of x for itself, while its first steps of W are on their
/// way. `split` warps share a tile's steps; sums over k are in one order for every row count.
/// Within (K+4) * 2^-23 * |scale| * sum_k |x*W| of the exact sum, with codes K+5, not counting the
/// roundings.
template <WeightCode Code, int TilesN, bool HasNorm, typename Y>
__global__ void __launch_bounds__(block_threads, Code != WeightCode::plain && TilesN == 8 ? 1 : 2)
    skinny_kernel(const Params<Y> p) {
  auto& shared = dynamic_shared<Shared<Code>>();
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int member = warp % p.split, inner = p.dense.inner;
  const int tile = static_cast<int>(blockIdx.x) * (block_warps / p.split) + warp / p.split;
  const int k_end = tile < p.tiles ? inner : 0;
  const TileRows of_tile = rows_of(p.dense, tile);
  Rows<Code, Y> rows(p.dense, shared.rings[warp], of_tile, k_end);

  let_next_kernel_start();
  for (int i = 0; i < stages<Code>; ++i) rows.copy((member + i * p.split) * k_step, i);
  rows.start(p.dense, of_tile);
  if constexpr (HasNorm) prefetch_norm(p.norm, inner);
  wait_for_previous_kernel();

  const bf16* x_rows[TilesN];
  find_x_rows<HasNorm>(p, reinterpret_cast<bf16*>(&shared + 1), x_rows);
  for (const bf16*& row : x_rows) row += member * k_step + lane % 4 * x_piece<Code>;

  float sums[TilesN][4] = {};
  int stage = 0;
  for (int k = member * k_step; k < k_end; k += p.split * k_step) {
    cp_async_wait<stages<Code> - 1>();
#pragma unroll(TilesN < 8 ? 2 : 1)
    for (int group = 0; group < 2; ++group) {
      uint4 w[2];
      const int own = k + group * 32 + lane % 4 * 8;
      rows.take(stage, k, group, own, w);
      uint4 x[TilesN];
#pragma unroll
      for (int n = 0; n < TilesN; ++n) {
        x[n] = {};
        if (own < inner) x[n] = load_x<Code>(x_rows[n] + group * 32);
      }
#pragma unroll
      for (int n = 0; n < TilesN; ++n) rows.multiply(w, x[n], sums[n]);
    }
    for (const bf16*& row : x_rows) row += p.split * k_step;
    rows.copy(k + stages<Code> * p.split * k_step, stage);
    stage = stage + 1 == stages<Code> ? 0 : stage + 1;
  }

  write_tile<block_warps>(p.dense, tile, 0, p.split, sums);
}

template <WeightCode Code, int TilesN, bool HasNorm, typename Y>
void run_tiles(Stream& stream, const Params<Y>& params) {
  const std::size_t normed_bytes = HasNorm ? x_bytes(params.dense.tokens, params.dense.inner) : 0;
  launch(stream,
         {.blocks = pieces(params.tiles, block_warps / params.split),
          .threads = block_threads,
          .shared_bytes =
              std::max(sizeof(Shared<Code>), sizeof(TileSums<TilesN, block_warps>)) + normed_bytes},
         skinny_kernel<Code, TilesN, HasNorm, Y>, params);
}

template <WeightCode Code, typename Y>
void run_code(Stream& stream, const Params<Y>& params) {
  const int tokens = params.dense.tokens;
  if constexpr (!gemv_takes(Code)) {
    if (params.norm.weight != nullptr) return run_tiles<Code, 1, true>(stream, params);
  }
  if (tokens <= 8) return run_tiles<Code, 1, false>(stream, params);
  if (tokens <= 16) return run_tiles<Code, 2, false>(stream, params);
  if (tokens <= 32) return run_tiles<Code, 4, false>(stream, params);
  run_tiles<Code, skinny_tokens_max / 8, false>(stream, params);
}

template <typename Y>
void run(Stream& stream, const Dense<bf16, Y>& dense, const DenseNorm& norm, WeightCode code) {
  require(norm.weight == nullptr ||
              (!gemv_takes(code) && takes_norm(dense.tokens, dense.inner, norm.groups)),
          "skinny: the norm's rows fit");
  const int columns = dense.is_gated ? 8 : 16;
  const int tiles = static_cast<int>(pieces(dense.columns, columns));
  const int steps = (dense.inner + k_step - 1) / k_step;
  const Params<Y> params = {.dense = dense,
                            .norm = norm,
                            .tiles = tiles,
                            .split = warps_of_tile(stream, tiles, steps, block_warps)};
  visit_any_code(code, [&]<WeightCode Code>() { run_code<Code>(stream, params); });
}

}  // namespace

void run_skinny(Stream& stream, const Dense<bf16, bf16>& dense, const DenseNorm& norm,
                WeightCode code) {
  run(stream, dense, norm, code);
}
void run_skinny(Stream& stream, const Dense<bf16, float>& dense, const DenseNorm& norm,
                WeightCode code) {
  run(stream, dense, norm, code);
}

}  // namespace hyb::kernels::cuda
