#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/ptx.h"
#include "kernels/linear/linear.cuh"

/// Tiles of a matrix product by the matrix instructions: what linear's route for any row count and
/// moe's grouped products share. Included by .cu files only.
namespace hyb::kernels::cuda {

/// A block of WarpRows x WarpColumns warps, each with TilesM x TilesN products of 16x8, and a ring
/// of `Stages` stages of `KStep` elements of k. By default two steps of the matrix instructions
/// between barriers, and 80 KB for 128 x 128: sm_86 and sm_89 have 99 KB for a block.
template <int WarpRows, int WarpColumns, int TilesM, int TilesN, int KStep = 32, int Stages = 4>
struct Tile {
  static constexpr int warp_columns = WarpColumns, tiles_m = TilesM, tiles_n = TilesN;
  static constexpr int tokens = WarpRows * TilesM * 16;
  static constexpr int outputs = WarpColumns * TilesN * 8;
  static constexpr int threads = WarpRows * WarpColumns * warp_size;
  static constexpr int k_step = KStep, stages = Stages;

  /// The tile for a weight of any code: of codes 64 columns, which take as much room as 32 of bf16,
  /// x apart. 98 KB for 128 x 128 of 8 bits. In 12 bits it is that of bf16.
  template <WeightCode Code>
  using For = std::conditional_t<Code == WeightCode::plain || Code == WeightCode::bits12, Tile,
                                 Tile<WarpRows, WarpColumns, TilesM, TilesN, half_columns, Stages>>;

  /// Returns where a warp's part of the tile starts.
  static constexpr int first_token(int warp) { return warp / WarpColumns * TilesM * 16; }
  static constexpr int first_output(int warp) { return warp % WarpColumns * TilesN * 8; }
};

inline constexpr int chunk = 8;  ///< elements of one copy

/// The launch bounds ask for this many blocks: 0 leaves the compiler its own aim, which for codes
/// costs spills on sm_80.
template <WeightCode Code>
inline constexpr int min_blocks = Code == WeightCode::plain ? 0 : 1;

/// A row has 16 bytes more than its elements, so that the 8 rows of a matrix lie in different
/// banks.
template <int Rows, int KStep>
using Stage = SharedArray<SharedArray<bf16, KStep + chunk>, Rows>;

/// A thread's copies into the stages of `Rows` rows: where they read is computed once, and a step
/// adds its k.
template <int Threads, int Rows, int KStep>
class RowCopies {
 public:
  /// Row i is row row_of(i) of `from`, or zeros if that is negative; rows have `inner` elements.
  template <typename RowOf>
  __device__ __forceinline__ RowCopies(const bf16* from, std::int64_t stride, int inner,
                                       const RowOf& row_of) {
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      const int row = has(i) ? row_of(row_at(i)) : -1;
      from_[i] = from + (row >= 0 ? row * stride : 0) + column();
      end_[i] = row >= 0 ? inner - column() : 0;
    }
  }

  /// Starts the copies of k .. k+KStep-1 to to(row, column). What is past the end of a row is zeros
  /// and not read.
  template <typename To>
  __device__ __forceinline__ void copy(int k, To&& to) const {
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      if (has(i)) cp_async16(to(row_at(i), column()), from_[i] + k, k < end_[i]);
    }
  }
  __device__ __forceinline__ void copy(Stage<Rows, KStep>& to, int k) const {
    copy(k, [&](int row, int column) { return &to[row][column]; });
  }

 private:
  static constexpr int chunks = KStep / chunk;
  static constexpr int copies = (Rows * chunks + Threads - 1) / Threads;
  static_assert(Threads % chunks == 0, "a thread copies the same columns of all its rows");

  __device__ static int column() { return static_cast<int>(threadIdx.x) % chunks * chunk; }
  __device__ static int row_at(int i) {
    return static_cast<int>(threadIdx.x) / chunks + i * (Threads / chunks);
  }
  __device__ static bool has(int i) { return Rows * chunks % Threads == 0 || row_at(i) < Rows; }

  const bf16* from_[copies];
  int end_[copies];  ///< the k from which there is nothing to read
};

/// The same of codes: one lane's of some rows, and the scales of one row.
template <WeightCode Code, int Threads, int Rows>
class CodeCopies {
 public:
  struct None {};
  struct Stage {
    SharedArray<SharedArray<typename LaneCodes<Code>::Vector, 4>, Rows> codes;
    SharedArray<ScaleWords<Code>, Rows> scales;
    std::conditional_t<has_upper_bits<Code>, SharedArray<SharedArray<std::uint32_t, 4>, Rows>, None>
        upper;
  };

  /// Row i is row row_of(i) of the weight; where that is negative it is another one, whose sums are
  /// never written.
  template <typename RowOf>
  __device__ __forceinline__ CodeCopies(const CodedMatrix& weight, const RowOf& row_of)
      : traits_(weight.traits) {
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      const int row = std::max(row_of(row_at(i)), 0);
      codes_[i] = weight.codes_of<Code>(row) + q() * lane_bytes;
      if constexpr (has_upper_bits<Code>) words_[i] = weight.scales_of<Code>(row);
    }
    scales_ = weight.scales_of<Code>(std::max(row_of(thread() % Rows), 0));
  }

  /// Starts the copies of half chunk `half`.
  __device__ __forceinline__ void copy(Stage& to, int half) const {
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      copy_codes(&to.codes[row_at(i)][q()], codes_[i] + half * 4 * lane_bytes, true);
      if constexpr (has_upper_bits<Code>) {
        cp_async<4>(&to.upper[row_at(i)][q()],
                    words_[i] + upper_word<Code>(traits_, half, q()) * 4);
      }
    }
    if (thread() < Rows) copy_scales<Code>(&to.scales[thread()], scales_, half, traits_, true);
  }

 private:
  static constexpr int lane_bytes = LaneCodes<Code>::bytes;
  static constexpr int copies = Rows * 4 / Threads;
  static_assert(copies * Threads == Rows * 4 && Rows <= Threads);

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int q() { return thread() % 4; }
  __device__ static int row_at(int i) { return thread() / 4 + i * (Threads / 4); }

  const GgufRowTraits& traits_;
  const std::byte *codes_[copies], *words_[has_upper_bits<Code> ? copies : 1], *scales_;
};

/// The warp's products of one stage, in ascending k.
template <typename T>
__device__ __forceinline__ void multiply(Stage<T::tokens, T::k_step>& x,
                                         Stage<T::outputs, T::k_step>& weight, int first_token,
                                         int first_output,
                                         float (&sums)[T::tiles_m][T::tiles_n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int k = 0; k < T::k_step; k += 16) {
    std::uint32_t a[T::tiles_m][4];
#pragma unroll
    for (int m = 0; m < T::tiles_m; ++m) {
      ldmatrix_x4(a[m], &x[first_token + m * 16 + lane % 16][k + lane / 16 * 8]);
    }
#pragma unroll
    for (int n = 0; n < T::tiles_n; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4(b,
                  &weight[first_output + n * 8 + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
#pragma unroll
      for (int m = 0; m < T::tiles_m; ++m) {
        mma_bf16(sums[m][n], a[m], b[0], b[1]);
        mma_bf16(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Operands of a tile: rows of `inner` elements, a multiple of 8, at multiples of 16 bytes.
template <WeightCode Code>
struct TileOperands {
  const bf16* x;
  std::int64_t x_stride;
  int inner;
  std::conditional_t<Code == WeightCode::plain, const bf16*, CodedMatrix> weight;
};

/// Products of 8 rows of the weight with 8 tokens, of which a lane has those of row l/4 with tokens
/// 2*(l%4) and 2*(l%4)+1, become those of token l/4 with rows 2*(l%4) and 2*(l%4)+1.
__device__ __forceinline__ void transpose_eight(float& first, float& second) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size, row = lane / 4;
  float turned[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int from = (lane % 4 * 2 + i) * 4 + row / 2;
    const float even = shuffle(first, from), odd = shuffle(second, from);
    turned[i] = row % 2 == 0 ? even : odd;
  }
  first = turned[0];
  second = turned[1];
}

/// The ring of stages of a tile: x, and the weight as it lies in memory.
template <typename T, WeightCode Code>
struct alignas(16) TileShared {
  static_assert(T::k_step == half_columns && T::tiles_n % 2 == 0);
  static constexpr int ahead = 0;
  using XCopies = RowCopies<T::threads, T::tokens, half_columns>;
  using WeightCopies = CodeCopies<Code, T::threads, T::outputs>;
  using Operands = TileOperands<Code>;

  /// 16 bytes at column 8 * i of row r are at i, or with half of a stage swapped where r is odd, so
  /// that what 8 lanes read lies in different banks.
  SharedArray<SharedArray<SharedArray<uint4, half_columns / chunk>, T::tokens>, T::stages> x;
  SharedArray<typename WeightCopies::Stage, T::stages> weight;

  __device__ static int place(int row, int piece) { return piece ^ row % 2 * 4; }

  template <typename RowOf>
  __device__ __forceinline__ static XCopies x_copies(const Operands& p, const RowOf& row_of) {
    return {p.x, p.x_stride, p.inner, row_of};
  }
  template <typename RowOf>
  __device__ __forceinline__ static WeightCopies weight_copies(const Operands& p,
                                                               const RowOf& row_of) {
    return {p.weight, row_of};
  }

  __device__ __forceinline__ void copy_x(int step, const Operands&, const XCopies& copies) {
    auto& to = x[step % T::stages];
    copies.copy(step * half_columns,
                [&](int row, int column) { return &to[row][place(row, column / chunk)]; });
  }
  __device__ __forceinline__ void copy_weight(int step, const Operands&,
                                              const WeightCopies& copies) {
    copies.copy(weight[step % T::stages], step);
  }

  /// A lane's x of a group.
  __device__ __forceinline__ uint4 load_tokens(int stage, int token, int group, int q) const {
    const auto piece = [&](int i) { return &x[stage][token][place(token, group * 4 + i)]; };
    if constexpr (!has_sixteens<Code>) return load16(piece(q));
    const auto half_of = [&](int i) {
      return load8(reinterpret_cast<const std::byte*>(piece(i)) + q % 2 * 8);
    };
    const uint2 first = half_of(q / 2), last = half_of(2 + q / 2);
    return {first.x, first.y, last.x, last.y};
  }

  /// The warp's products of one stage: levels of 32 columns, whose sum then meets its scale. The
  /// weight is the instruction's first operand, whose registers the decoder fills in their order:
  /// until finish(), sums[m][n+i] are those of 16 rows of the weight from n*8 on, n even, with 8
  /// tokens from m*16+i*8 on.
  __device__ __forceinline__ void multiply(int step, const Operands& p, int first_token,
                                           int first_output,
                                           float (&sums)[T::tiles_m][T::tiles_n][4]) const {
    const GgufRowTraits& traits = p.weight.traits;
    const int stage = step % T::stages;
    const int lane = static_cast<int>(threadIdx.x) % warp_size, row = lane / 4, q = lane % 4;
    uint4 own[T::tiles_n];
    uint2 words[T::tiles_n];
#pragma unroll
    for (int n = 0; n < T::tiles_n; ++n) {
      const int output = first_output + n * 8 + row;
      own[n] = load_codes(&weight[stage].codes[output][q]);
      words[n] = load_scales(&weight[stage].scales[output]);
      if constexpr (has_upper_bits<Code>) {
        own[n].z = upper_of_half<Code>(weight[stage].upper[output][q], step);
      }
    }
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      uint4 tokens[T::tiles_m][2];
#pragma unroll
      for (int i = 0; i < T::tiles_m * 2; ++i) {
        tokens[i / 2][i % 2] = load_tokens(stage, first_token + i * 8 + row, group, q);
      }
      GroupScales scales[T::tiles_n / 2][2];
#pragma unroll
      for (int n = 0; n < T::tiles_n; n += 2) {
        const uint4 low = levels_of_group<Code>(own[n], group, traits),
                    high = levels_of_group<Code>(own[n + 1], group, traits);
        scales[n / 2][0] = group_scales<Code>(words[n], step, group, traits);
        scales[n / 2][1] = group_scales<Code>(words[n + 1], step, group, traits);
#pragma unroll
        for (int i = 0; i < T::tiles_m * 2; ++i) {
          add_group<Code>(low, high, scales[n / 2], tokens[i / 2][i % 2], sums[i / 2][n + i % 2]);
        }
      }
      if (!has_mins<Code>(traits)) continue;
      const Ones ones;
#pragma unroll
      for (int i = 0; i < T::tiles_m * 2; ++i) {
        const PairOfSums x_sums = sums_of_x(ones, tokens[i / 2][i % 2]);
#pragma unroll
        for (int n = 0; n < T::tiles_n; n += 2) {
          subtract_mins(scales[n / 2], x_sums, sums[i / 2][n + i % 2]);
        }
      }
    }
  }

  /// Sums in the order of the other tiles: sums[m][n] are those of 16 tokens with 8 rows.
  __device__ __forceinline__ static void finish(float (&sums)[T::tiles_m][T::tiles_n][4]) {
#pragma unroll
    for (int m = 0; m < T::tiles_m; ++m) {
#pragma unroll
      for (int n = 0; n < T::tiles_n; n += 2) {
        float(&low)[4] = sums[m][n];
        float(&high)[4] = sums[m][n + 1];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float other = low[2 + i];
          low[2 + i] = high[i];
          high[i] = other;
        }
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          transpose_eight(low[i], low[i + 1]);
          transpose_eight(high[i], high[i + 1]);
        }
      }
    }
  }
};

template <typename T>
struct alignas(16) TileShared<T, WeightCode::plain> {
  static constexpr int ahead = 0;
  SharedArray<Stage<T::tokens, T::k_step>, T::stages> x;
  SharedArray<Stage<T::outputs, T::k_step>, T::stages> weight;

  using XCopies = RowCopies<T::threads, T::tokens, T::k_step>;
  using WeightCopies = RowCopies<T::threads, T::outputs, T::k_step>;
  using Operands = TileOperands<WeightCode::plain>;

  template <typename RowOf>
  __device__ __forceinline__ static XCopies x_copies(const Operands& p, const RowOf& row_of) {
    return {p.x, p.x_stride, p.inner, row_of};
  }
  template <typename RowOf>
  __device__ __forceinline__ static WeightCopies weight_copies(const Operands& p,
                                                               const RowOf& row_of) {
    return {p.weight, p.inner, p.inner, row_of};
  }

  __device__ __forceinline__ void copy_x(int step, const Operands&, const XCopies& copies) {
    copies.copy(x[step % T::stages], step * T::k_step);
  }
  __device__ __forceinline__ void copy_weight(int step, const Operands&,
                                              const WeightCopies& copies) {
    copies.copy(weight[step % T::stages], step * T::k_step);
  }
  __device__ __forceinline__ void multiply(int step, const Operands&, int first_token,
                                           int first_output,
                                           float (&sums)[T::tiles_m][T::tiles_n][4]) {
    cuda::multiply<T>(x[step % T::stages], weight[step % T::stages], first_token, first_output,
                      sums);
  }
};

/// A thread's part of a weight in 12 bits: lane q's eights of `Rows / (Threads / 4)` rows, which it
/// copies itself and widens itself, a step of `KStep` columns at a time.
template <int Threads, int Rows, int KStep, int Stages>
class Bits12Copies {
 public:
  static constexpr int rows = Rows * 4 / Threads;
  static_assert(rows * Threads == Rows * 4);
  static constexpr int halves = std::max(KStep / half_columns, 1);  ///< of a unit of copies
  static constexpr int steps = std::max(half_columns / KStep, 1);   ///< of a unit
  static_assert(halves * half_columns == steps * KStep);
  /// One step is widened ahead; the units of the others are in flight.
  static constexpr int units = (Stages - 1 + steps - 1) / steps;

  struct Pieces {
    SharedArray<SharedArray<SharedArray<uint4, Threads>, halves>, rows> rest;
    SharedArray<SharedArray<SharedArray<uint2, Threads>, halves>, rows> codes;
  };

  template <typename RowOf>
  __device__ __forceinline__ Bits12Copies(const CodedMatrix& weight, const RowOf& row_of) {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int row = row_of(row_at(i));
      from_[i] = weight.codes_of<WeightCode::bits12>(row >= 0 ? row : 0);
      halves_[i] = row >= 0 ? weight.chunks : 0;
      if (row >= 0) {
        of_.set(i, load8(weight.scales_of<WeightCode::bits12>(row)));
      } else {
        of_.clear(i);
      }
    }
    of_.start(weight.patches);
  }

  /// Starts the copies of the unit that starts with step `step`, if one does.
  __device__ __forceinline__ void copy(SharedArray<Pieces, units>& ring, int step) const {
    if (step % steps != 0) return;
    Pieces& to = ring[step / steps % units];
    const int first = step * KStep / half_columns;
#pragma unroll
    for (int i = 0; i < rows; ++i) {
#pragma unroll
      for (int h = 0; h < halves; ++h) {
        const bool is_there = first + h < halves_[i];
        const std::byte* const half =
            from_[i] + (is_there ? (first + h) * Bits12RowsShape::half_bytes : 0);
        cp_async16(&to.rest[i][h][thread()], half + q() * 16, is_there);
        cp_async<8>(&to.codes[i][h][thread()], half + Bits12RowsShape::codes_at + q() * 8,
                    is_there);
      }
    }
  }

  /// Widens what this thread has copied of step `step`, as bf16. Steps ascend.
  __device__ __forceinline__ void widen(const SharedArray<Pieces, units>& ring, int step,
                                        Stage<Rows, KStep>& to) {
    const Pieces& unit = ring[step / steps % units];
#pragma unroll
    for (int k = 0; k < KStep; k += 32) {
      const int column = step * KStep + k, h = k / half_columns;
      const int group = column / 32 % 2;
      uint4 eights[rows];
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const auto* const rest = reinterpret_cast<const std::byte*>(&unit.rest[i][h][thread()]);
        const auto* const codes =
            reinterpret_cast<const std::uint32_t*>(&unit.codes[i][h][thread()]);
        eights[i] = of_.widen(i, load8(rest + group * 8), codes[group]);
      }
      of_.patch(column + q() * 8, eights);
#pragma unroll
      for (int i = 0; i < rows; ++i) store16(&to[row_at(i)][k + q() * 8], eights[i]);
    }
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int q() { return thread() % 4; }
  __device__ static int row_at(int i) { return thread() / 4 + i * (Threads / 4); }

  const std::byte* from_[rows];
  int halves_[rows];  ///< that are there; after them come zeros
  Bits12LaneRows<rows> of_;
};

/// The ring of 12 bits, and two stages of what was widened: a thread widens the next step while it
/// multiplies one.
template <typename T>
struct alignas(16) TileShared<T, WeightCode::bits12> {
  static constexpr int ahead = 1;
  using XCopies = RowCopies<T::threads, T::tokens, T::k_step>;
  using WeightCopies = Bits12Copies<T::threads, T::outputs, T::k_step, T::stages>;
  using Operands = TileOperands<WeightCode::bits12>;

  SharedArray<Stage<T::tokens, T::k_step>, T::stages> x;
  SharedArray<typename WeightCopies::Pieces, WeightCopies::units> pieces;
  SharedArray<Stage<T::outputs, T::k_step>, 2> weight;

  template <typename RowOf>
  __device__ __forceinline__ static XCopies x_copies(const Operands& p, const RowOf& row_of) {
    return {p.x, p.x_stride, p.inner, row_of};
  }
  template <typename RowOf>
  __device__ __forceinline__ static WeightCopies weight_copies(const Operands& p,
                                                               const RowOf& row_of) {
    return {p.weight, row_of};
  }

  __device__ __forceinline__ void copy_x(int step, const Operands&, const XCopies& copies) {
    copies.copy(x[step % T::stages], step * T::k_step);
  }
  __device__ __forceinline__ void copy_weight(int step, const Operands&,
                                              const WeightCopies& copies) {
    copies.copy(pieces, step);
  }
  __device__ __forceinline__ void widen(int step, WeightCopies& copies) {
    copies.widen(pieces, step, weight[step % 2]);
  }
  __device__ __forceinline__ void multiply(int step, const Operands&, int first_token,
                                           int first_output,
                                           float (&sums)[T::tiles_m][T::tiles_n][4]) {
    cuda::multiply<T>(x[step % T::stages], weight[step % 2], first_token, first_output, sums);
  }
};

/// The warp's part of a tile, from rows x_row(i) of x and weight_row(i) of the weight, of which a
/// negative one is zeros. Walks k through a ring of stages: each sum is in ascending k in every
/// tile size. What is loaded before before_x() is the weight.
template <typename T, WeightCode Code, typename XRow, typename WeightRow, typename BeforeX>
__device__ __forceinline__ void multiply_tile(TileShared<T, Code>& shared,
                                              const TileOperands<Code>& p, XRow&& x_row,
                                              WeightRow&& weight_row, BeforeX&& before_x,
                                              float (&sums)[T::tiles_m][T::tiles_n][4]) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  constexpr int stages = T::stages;
  const int steps = (p.inner + T::k_step - 1) / T::k_step;
  auto&& weight_copies = TileShared<T, Code>::weight_copies(p, weight_row);
  const auto copy_weight = [&](int step) {
    if (step < steps) shared.copy_weight(step, p, weight_copies);
  };
  for (int step = 0; step < stages - 1; ++step) copy_weight(step);
  before_x();
  const auto& x_copies = TileShared<T, Code>::x_copies(p, x_row);  // may read what is waited for
  const auto copy_x = [&](int step) {
    if (step < steps) shared.copy_x(step, p, x_copies);
    cp_async_commit();
  };
  for (int step = 0; step < stages - 1; ++step) copy_x(step);
  constexpr int ahead = TileShared<T, Code>::ahead;
  if constexpr (ahead > 0) {
    cp_async_wait<stages - 2>();
    shared.widen(0, weight_copies);
  }
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<stages - 2 - ahead>();
    sync_block();  // the stage has arrived for all, and all are done with the one that is filled
                   // next
    copy_weight(step + stages - 1);
    copy_x(step + stages - 1);
    if constexpr (ahead > 0) {
      if (step + 1 < steps) shared.widen(step + 1, weight_copies);
    }
    shared.multiply(step, p, T::first_token(warp), T::first_output(warp), sums);
  }
  if constexpr (Code != WeightCode::plain && Code != WeightCode::bits12) shared.finish(sums);
}

}  // namespace hyb::kernels::cuda
