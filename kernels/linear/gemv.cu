#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/linear/input_rows.h"
#include "kernels/linear/linear.cuh"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 8;
constexpr int block_threads = block_warps * warp_size;
/// Two blocks of 48 KB in flight on a processor are about 1.5 times what 3 TB/s need at 0.8 us; a
/// third block, the next kernel's, still finds room.
constexpr int blocks_per_processor = 2;
constexpr int group_rows = 4;          ///< of W, owned by a team of warps
constexpr int stages = 3;              ///< steps in flight of bf16
constexpr int k_step = warp_size * 8;  ///< a lane takes 8 elements of each row

template <typename Y>
struct Params {
  Dense<bf16, Y> dense;
  DenseNorm norm;
  int groups;  ///< of rows of W
  int split;   ///< warps of a team, which share the steps of a row
};

/// A warp's steps in flight. A lane reads only what it copied itself: no barriers.
template <WeightCode Code>
struct Ring {
  SharedArray<SharedArray<SharedArray<uint4, warp_size>, group_rows>, stages> steps;
};
/// Has as many bytes as others, which the lanes copy for each other: a row's step is 4 halves, 24
/// pieces.
template <>
struct Ring<WeightCode::bits12> {
  static constexpr int stages = 4;
  static constexpr int row_bytes =
      k_step / Bits12RowsShape::half_columns * Bits12RowsShape::half_bytes;
  static constexpr int row_pieces = row_bytes / 16;
  static constexpr int copies = group_rows * row_pieces / warp_size;  ///< of a lane
  SharedArray<SharedArray<SharedArray<uint4, row_pieces>, group_rows>, stages> steps;
};

template <WeightCode Code>
struct Shared {
  SharedArray<Ring<Code>, block_warps> rings;
};

struct Partials {
  SharedArray<SharedArray<float, warp_size>, block_warps> sums;
};

/// Row of W of row i of a group; past the end it is the last one again, never written.
template <typename Y>
__device__ __forceinline__ int row_of(const Dense<bf16, Y>& p, int group, int i) {
  const int columns = p.is_gated ? group_rows / 2 : group_rows;
  return std::min(group * columns + i % columns, p.columns - 1) + i / columns * p.columns;
}

/// The lane's pieces of W, copied in the order in which they are used, `stages` ahead.
template <WeightCode Code, typename Y>
class Weights {
 public:
  __device__ Weights(const Params<Y>& p, Shared<Code>& shared, int group, int group_end)
      : p_(p),
        pieces_(shared.rings[static_cast<int>(threadIdx.x) / warp_size].steps),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        first_step_(static_cast<int>(threadIdx.x) / warp_size % p.split),
        step_(first_step_),
        group_(group),
        group_end_(group_end) {
    if (group_ < group_end_) find_rows();
    for (int stage = 0; stage < stages; ++stage) {
      copy(stage);
      cp_async_commit();
    }
  }

  /// Before the first step of each group.
  __device__ __forceinline__ void start_group(int) {}
  /// The next step's pieces, this lane's from column `own` on.
  __device__ __forceinline__ void take(int, float (&values)[group_rows][8]) {
    cp_async_wait<stages - 1>();
#pragma unroll
    for (int i = 0; i < group_rows; ++i) unpack(load16(&pieces_[stage_][i][lane_]), values[i]);
  }
  __device__ __forceinline__ void refill() {
    copy(stage_);
    cp_async_commit();
    stage_ = stage_ + 1 == stages ? 0 : stage_ + 1;
  }

 private:
  __device__ __forceinline__ void copy(int stage) {
    if (group_ >= group_end_) return;
    const int k = step_ * k_step + lane_ * 8;
    const bool is_there = k < p_.dense.inner;
#pragma unroll
    for (int i = 0; i < group_rows; ++i) {
      cp_async16(&pieces_[stage][i][lane_], rows_[i] + (is_there ? k : 0), is_there);
    }
    step_ += p_.split;
    if (step_ * k_step < p_.dense.inner) return;
    step_ = first_step_;
    group_ += block_warps / p_.split;
    if (group_ < group_end_) find_rows();
  }
  __device__ __forceinline__ void find_rows() {
#pragma unroll
    for (int i = 0; i < group_rows; ++i) {
      rows_[i] = static_cast<const bf16*>(p_.dense.weight) +
                 static_cast<std::int64_t>(row_of(p_.dense, group_, i)) * p_.dense.inner;
    }
  }

  const Params<Y>& p_;
  SharedArray<SharedArray<SharedArray<uint4, warp_size>, group_rows>, stages>& pieces_;
  const bf16* rows_[group_rows];
  int lane_, first_step_, step_, group_, group_end_, stage_ = 0;
};

/// The same of 12 bits.
template <typename Y>
class Weights<WeightCode::bits12, Y> {
  using OwnRing = Ring<WeightCode::bits12>;

 public:
  __device__ Weights(const Params<Y>& p, Shared<WeightCode::bits12>& shared, int group,
                     int group_end)
      : p_(p),
        steps_(shared.rings[static_cast<int>(threadIdx.x) / warp_size].steps),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        first_step_(static_cast<int>(threadIdx.x) / warp_size % p.split),
        step_(first_step_),
        group_(group),
        group_end_(group_end) {
    if (group_ < group_end_) find_rows();
    for (int stage = 0; stage < OwnRing::stages; ++stage) {
      copy(stage);
      cp_async_commit();
    }
  }

  __device__ __forceinline__ void start_group(int group) {
#pragma unroll
    for (int i = 0; i < group_rows; ++i) {
      const int row = row_of(p_.dense, group, i);
      rows_.set(i, load8(p_.dense.coded.template scales_of<WeightCode::bits12>(row)));
    }
    rows_.start(p_.dense.coded.patches);
  }
  __device__ __forceinline__ void take(int own, float (&values)[group_rows][8]) {
    cp_async_wait<OwnRing::stages - 1>();
    sync_warp();  // the others' copies have arrived, too
    const int half = lane_ / 8, eight = lane_ % 4 * 2 + lane_ / 4 % 2;
    uint4 eights[group_rows];
#pragma unroll
    for (int i = 0; i < group_rows; ++i) {
      auto& row = steps_[stage_][i];
      const int piece = half * 6;
      const uint2 rest =
          load8(reinterpret_cast<const std::byte*>(&row[piece + eight / 2]) + eight % 2 * 8);
      const auto* const codes = reinterpret_cast<const std::uint32_t*>(&row[piece + 4 + eight / 4]);
      eights[i] = rows_.widen(i, rest, codes[eight % 4]);
    }
    rows_.patch(own, eights);
#pragma unroll
    for (int i = 0; i < group_rows; ++i) unpack(eights[i], values[i]);
  }
  __device__ __forceinline__ void refill() {
    sync_warp();  // all lanes have read
    copy(stage_);
    cp_async_commit();
    stage_ = stage_ + 1 == OwnRing::stages ? 0 : stage_ + 1;
  }

 private:
  /// A lane's copies are pieces lane, lane+32 and lane+64 of the four rows'.
  __device__ __forceinline__ int copied_row(int i) const {
    return (lane_ + i * warp_size) / OwnRing::row_pieces;
  }
  __device__ __forceinline__ int copied_piece(int i) const {
    return (lane_ + i * warp_size) % OwnRing::row_pieces;
  }
  __device__ __forceinline__ void copy(int stage) {
    if (group_ >= group_end_) return;
    auto& to = steps_[stage];
    const int row_bytes = p_.dense.coded.chunks * static_cast<int>(Bits12RowsShape::half_bytes);
#pragma unroll
    for (int i = 0; i < OwnRing::copies; ++i) {
      const int at = step_ * OwnRing::row_bytes + copied_piece(i) * 16;
      const bool is_there = at < row_bytes;
      cp_async16(&to[copied_row(i)][copied_piece(i)], from_[i] + (is_there ? at : 0), is_there);
    }
    step_ += p_.split;
    if (step_ * k_step < p_.dense.inner) return;
    step_ = first_step_;
    group_ += block_warps / p_.split;
    if (group_ < group_end_) find_rows();
  }
  __device__ __forceinline__ void find_rows() {
    const CodedMatrix& coded = p_.dense.coded;
#pragma unroll
    for (int i = 0; i < OwnRing::copies; ++i) {
      from_[i] = coded.codes_of<WeightCode::bits12>(row_of(p_.dense, group_, copied_row(i)));
    }
  }

  const Params<Y>& p_;
  SharedArray<SharedArray<SharedArray<uint4, OwnRing::row_pieces>, group_rows>, OwnRing::stages>&
      steps_;
  Bits12LaneRows<group_rows> rows_;
  const std::byte* from_[OwnRing::copies];
  int lane_, first_step_, step_, group_, group_end_, stage_ = 0;
};

/// The team's sums of its members', in the members' order. Once in a kernel: split_of gives a team
/// of several warps one group only.
__device__ __forceinline__ float sum_of_team(float sum, int split) {
  if (split == 1) return sum;
  const int warp = static_cast<int>(threadIdx.x) / warp_size, team = warp / split;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  auto& partial = shared_object<Partials>().sums;
  partial[warp][lane] = sum;
  barrier_sync(1 + team, split * warp_size);
  sum = 0.0F;
  for (int i = 0; i < split; ++i) sum += partial[team * split + i][lane];
  return sum;
}

/// The block's own head of several.
template <WeightCode Code, typename Y>
__device__ __forceinline__ Dense<bf16, Y> own_head(Dense<bf16, Y> p) {
  const std::int64_t head = blockIdx.y;
  p.x += head * p.heads.x_step;
  p.y += head * p.heads.y_step;
  if constexpr (Code == WeightCode::plain) {
    p.weight = static_cast<const std::byte*>(p.weight) + head * p.heads.weight_bytes;
  } else {
    p.coded.codes += head * p.heads.weight_bytes;
    p.coded.scales += head * p.heads.weight_bytes;
  }
  return p;
}

/// A team of `split` warps owns 4 rows of W at a time (2 and their ups with a gate), all tokens
/// of them; a block has a run of such groups. A lane's elements of a row are k%256/8 = lane of
/// every split-th step, in ascending k; then come the sums of the lanes and of the team: one order
/// for every row count and code. Within (K+4) * 2^-23 * |scale| * sum_k |x*W| of the exact sum,
/// besides the roundings.
template <WeightCode Code, int Tokens, bool Staged, typename Y>
__global__ void __launch_bounds__(block_threads, Tokens == 1 ? 3 : 2)
    gemv_kernel(const Params<Y> of_heads) {
  Params<Y> p = of_heads;
  p.dense = own_head<Code>(of_heads.dense);
  auto& shared = dynamic_shared<Shared<Code>>();
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const auto block = static_cast<std::int64_t>(blockIdx.x);
  const int teams = block_warps / p.split;
  const int begin = static_cast<int>(block * p.groups / gridDim.x) + warp / p.split;
  const int end = static_cast<int>((block + 1) * p.groups / gridDim.x);
  const int inner = p.dense.inner;
  let_next_kernel_start();
  Weights<Code, Y> weights(p, shared, begin, end);
  prefetch_norm(p.norm, inner);
  wait_for_previous_kernel();

  const bf16* x = p.dense.x;
  std::conditional_t<Staged, int, std::int64_t> rows[Tokens];
  for (int t = 0; t < Tokens; ++t) {
    rows[t] = std::min(t, p.dense.tokens - 1) * (Staged ? inner : p.dense.x_stride);
  }
  if constexpr (Staged) {
    auto* const staged = reinterpret_cast<bf16*>(&shared + 1);
    stage_all_rows<block_warps, Tokens == 1 ? 2 : 4>(staged, x, p.dense.x_stride, p.dense.tokens,
                                                     inner, p.norm);
    x = staged;
  }

  for (int group = begin; group < end; group += teams) {
    float sums[group_rows * Tokens] = {};
    weights.start_group(group);
    for (int k = warp % p.split * k_step; k < inner; k += p.split * k_step) {
      float w[group_rows][8];
      const int own = k + lane * 8;
      weights.take(own, w);
#pragma unroll
      for (int t = 0; t < Tokens; ++t) {
        float values[8] = {};
        if (own < inner) unpack(load16(x + rows[t] + own), values);
#pragma unroll
        for (int i = 0; i < group_rows; ++i) {
#pragma unroll
          for (int j = 0; j < 8; ++j) sums[i * Tokens + t] += w[i][j] * values[j];
        }
      }
      weights.refill();
    }
    const float sum = sum_of_team(warp_sums(sums), p.split);
    const float up = shuffle_xor(sum, warp_size / 2);  // of the row two below in the group
    constexpr int lanes = warp_size / (group_rows * Tokens);
    const int row = lane / lanes / Tokens, token = lane / lanes % Tokens;
    if (warp % p.split != 0 || lane % lanes != 0) continue;
    if (!p.dense.is_gated) {
      write(p.dense, token, group * group_rows + row, sum, 0.0F);
    } else if (row < group_rows / 2) {
      write(p.dense, token, group * (group_rows / 2) + row, sum, up);
    }
  }
}

template <WeightCode Code, int Tokens, typename Y>
void run_tokens(Stream& stream, const Params<Y>& params) {
  const std::size_t staged_bytes = x_bytes(params.dense.tokens, params.dense.inner);
  const bool staged = staged_bytes <= x_bytes_max;
  const auto heads = static_cast<unsigned>(params.dense.heads.count);
  const auto blocks = pieces(blocks_per_processor * stream.processors(), heads);
  launch(stream,
         {.blocks = dim3(
              std::min(blocks, pieces(std::int64_t{params.groups} * params.split, block_warps)),
              heads),
          .threads = block_threads,
          .shared_bytes = sizeof(Shared<Code>) + (staged ? staged_bytes : 0)},
         staged ? gemv_kernel<Code, Tokens, true, Y> : gemv_kernel<Code, Tokens, false, Y>, params);
}

/// Puts as many warps on a row as the card has over, so that a small matrix is in flight as a
/// whole; not by the row count, which no sum may depend on.
int split_of(const Stream& stream, int groups, int inner) {
  const int warps = blocks_per_processor * stream.processors() * block_warps;
  const int steps = (inner + k_step - 1) / k_step;
  int split = 1;
  while (split < block_warps && steps > stages * split && groups * split * 2 <= warps) split *= 2;
  return split;
}

template <WeightCode Code, typename Y>
void run_code(Stream& stream, const Params<Y>& params) {
  if (params.dense.tokens == 1) return run_tokens<Code, 1>(stream, params);
  if (params.dense.tokens == 2) return run_tokens<Code, 2>(stream, params);
  run_tokens<Code, gemv_tokens_max>(stream, params);
}

template <typename Y>
void run(Stream& stream, const Dense<bf16, Y>& dense, const DenseNorm& norm, WeightCode code) {
  require(norm.weight == nullptr || takes_norm(dense.tokens, dense.inner, norm.groups),
          "gemv: the norm's rows fit");
  const int columns = dense.is_gated ? group_rows / 2 : group_rows;
  const int groups = static_cast<int>(pieces(dense.columns, columns));
  const Params<Y> params = {.dense = dense,
                            .norm = norm,
                            .groups = groups,
                            .split = split_of(stream, groups, dense.inner)};
  if (code == WeightCode::bits12) return run_code<WeightCode::bits12>(stream, params);
  run_code<WeightCode::plain>(stream, params);
}

}  // namespace

void run_gemv(Stream& stream, const Dense<bf16, bf16>& dense, const DenseNorm& norm,
              WeightCode code) {
  run(stream, dense, norm, code);
}
void run_gemv(Stream& stream, const Dense<bf16, float>& dense, const DenseNorm& norm,
              WeightCode code) {
  run(stream, dense, norm, code);
}

}  // namespace hyb::kernels::cuda
