#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/activation.h"
#include "kernels/attention_reach.h"
#include "kernels/device.h"
#include "kernels/floats.h"
#include "kernels/op_shapes.h"

namespace hyb::kernels {

/// The body of one of the jobs below for an instruction set that has vectors: in the x_simd.h of
/// the job's op.
template <Isa isa, typename Job>
struct VectorRoute {
  static void run(const Job& job);
};

/// Runs the job by vectors. False: this instruction set has none, and the plain loop has to.
template <typename Job>
bool run_vectors(Isa isa, const Job& job) {
  if (isa == Isa::plain) return false;
  isa == Isa::avx512 ? VectorRoute<Isa::avx512, Job>::run(job)
                     : VectorRoute<Isa::avx2, Job>::run(job);
  return true;
}

/// Some rows of one kv head of one span; row r is query head r % group of the span's token
/// r / group. Vector routes need page_tokens to be 16 times a power of two. T is the type of
/// activations, K that of keys and values.
template <typename T, typename K>
struct AttentionRows {
  const T* q;  ///< the span's first token, first query head of the kv head
  T* y;
  std::int64_t q_stride, y_stride;  ///< from token to token
  const K* pages;                   ///< the kv head's part of page 0
  std::int64_t page_stride;
  const std::int32_t* page_table;
  std::int64_t position;  ///< of the span's first token
  std::int64_t group, head_dim, page_tokens;
  float scale;
  std::int64_t first_row, rows;
  AttentionReach reach;
  float softcap;       ///< 0: none
  const float* sinks;  ///< of the kv head's first query head; null: none
  const T* gate;       ///< of the rows of q; null: none
  std::int64_t gate_stride;
  std::int64_t gate_dim;  ///< gates of a head: head_dim, or 1 for all its dimensions
};

/// Rows that one call takes at most: whole register tiles, and partials that fit on a stack.
constexpr std::int64_t attention_rows_max(std::int64_t head_dim) {
  return head_dim <= 128 ? 30 : head_dim <= 256 ? 12 : 6;
}

/// The state of a row after some keys has, in floats: sums[head_dim], one sum of weights for every
/// lane, the largest score.
constexpr std::int64_t attention_lanes_max = 16;
constexpr std::int64_t attention_partial(std::int64_t head_dim) {
  return head_dim + attention_lanes_max + 1;
}

/// One body per ISA level. The plain one has `rows` alone.
template <typename T, typename K>
struct AttentionRoutes {
  /// All keys of the rows, to y.
  void (*rows)(const AttentionRows<T, K>& job);
  /// The keys of one run, to one partial per row; nothing where no row reaches the run.
  void (*run)(const AttentionRows<T, K>& job, std::int64_t run, float* partials);
  /// Merges the partials of all runs that some row reaches into y: those of the first such run are
  /// at `partials`, those of each next one `run_stride` floats on.
  void (*merge)(const AttentionRows<T, K>& job, float* partials, std::int64_t run_stride);
};

template <Isa isa, typename T, typename K>
struct RoutesOf {
  static AttentionRoutes<T, K> attention();
};

/// The type in which keys and values of type K are multiplied with queries and weights, which are
/// rounded to it: K itself,
/// or the smallest type of activations that holds every number of K.
template <typename K>
using KvOperand = std::conditional_t<std::is_same_v<K, e4m3>, bf16, K>;

/// Some heads of one token, as many as its shape has, over the rows of latents of its sequence.
template <typename T, typename K>
struct LatentRows : LatentShape {
  const T *turned = nullptr, *latent = nullptr;  ///< of the first head
  T* y = nullptr;
  std::int64_t turned_stride = 0;  ///< from head to head
  const K* pages = nullptr;
  std::int64_t page_stride = 0;
  const std::int32_t* page_table = nullptr;
  std::int64_t position = 0;  ///< of the token
  std::int64_t page_tokens = 0;
  const float* factors = nullptr;  ///< on each head's y

  const K* row_at(std::int64_t at) const {
    return pages + page_table[at / page_tokens] * page_stride + at % page_tokens * row_width();
  }
};
inline constexpr std::int64_t latent_heads_max = 4;

inline constexpr std::int64_t conv_width_max = 4, short_conv_width_max = 7;

/// Holds what causal_conv and short_conv have in common, for channels begin .. end-1 in every span.
/// The convolved inputs are x, or where there are gates `before` * x, rounded to T; the sum goes
/// through silu, or, rounded to T, is multiplied by `after`.
template <typename T>
struct ConvChannels {
  const T* x;
  T* y;
  T* windows;
  const float* weight;
  const float* bias;  ///< null: none
  const T* before;    ///< with the stride of x, as `after`; both null: no gates
  const T* after;
  const std::int32_t* span_begin;
  const std::int32_t* read_slot;
  const std::int32_t* write_slot;
  std::int64_t spans, x_stride, y_stride, slot_stride;
  std::int64_t width, begin, end;
};

/// One thread's part of a recurrence over ragged spans (delta_rule, ssd): of every span its share
/// of the heads or of their states. T is the type of activations, S of the state.
template <typename T, typename S>
struct RecurrenceShare {
  const T* x;
  const float* rate;
  const float* dt_bias;
  S* state;
  T* y;
  const std::int32_t* span_begin;
  const std::int32_t* read_slot;
  const std::int32_t* write_slot;
  std::int64_t spans, x_stride, y_stride, slot_stride;
  std::int64_t rows, columns;  ///< of a head's state
  int thread, threads;
};

/// Holds a share of a DeltaRule: of every span, the share of the vectors of state columns. Dk rows,
/// Dv columns.
template <typename T, typename S>
struct DeltaRuleShare : RecurrenceShare<T, S>, DeltaShape {
  const T* b = nullptr;
  const T* a = nullptr;
  std::int64_t b_stride = 0, a_stride = 0;
  std::int64_t value_heads = 0;
  float q_scale = 0.0F;  ///< Dk^-0.5

  std::int64_t key_head_of(std::int64_t head) const {
    return tiled ? head % key_heads : head / (value_heads / key_heads);
  }
  const T* a_of(std::int64_t token, std::int64_t head) const {
    return a + token * a_stride + head * (per_channel ? this->rows : 1);
  }
  const float* dt_bias_of(std::int64_t head) const {
    return this->dt_bias + head * (per_channel ? this->rows : 1);
  }
  /// Returns the head at a place of all heads in the order of their key heads.
  std::int64_t head_at(std::int64_t place) const {
    const std::int64_t group = value_heads / key_heads;
    return tiled ? place % group * key_heads + place / group : place;
  }
  const T* q_of(std::int64_t token, std::int64_t key_head) const {
    return this->x + token * this->x_stride + key_head * this->rows;
  }
  const T* k_of(std::int64_t token, std::int64_t key_head) const {
    return q_of(token, key_heads + key_head);
  }
  const T* v_of(std::int64_t token, std::int64_t head) const {
    return q_of(token, 2 * key_heads) + head * this->columns;
  }
};

/// y[i] = f(x[i]), or where there is an up f(x[i]) * its factor; y may be x.
template <typename T>
struct ActivationRow {
  Activation activation;
  const T* x;
  const T* up;  ///< null: not gated
  T* y;
  std::int64_t count;
};

/// Part of a row of a Cap.
struct CapRow {
  float* x;
  std::int64_t count;
  float cap;
};

/// Some rows of a GatedNorm.
template <typename T>
struct GatedNormRows {
  const T* x;
  const T* gate;
  T* y;
  const float* weight;
  std::int64_t rows, x_stride, gate_stride, y_stride;
  std::int64_t slices, width;  ///< a row is `slices` slices of `width`
  float eps;
  bool norm_first, sigmoid_gate;
};

/// Some rows of one piece, in the slot and packed.
template <typename T>
struct SnapshotRows {
  T* state;
  bf16* scales;
  std::int8_t* values;
  std::int64_t rows, columns;
};

namespace {

/// The scale of a row from the bits of its largest magnitude; NaN where that is 2^127 or more.
constexpr bf16 snapshot_scale(std::uint32_t largest_bits) {
  constexpr std::uint32_t limit = 0x7f000000, scale_min = 0x0080;  // 2^127, 2^-126
  if (largest_bits >= limit) return {0x7fc0};
  const auto quotient =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, largest_bits) / 127.0F);
  const std::uint32_t up = (quotient + 0xffff) >> 16;
  return {static_cast<std::uint16_t>(up < scale_min ? scale_min : up)};
}

constexpr float snapshot_scale_value(bf16 scale) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(scale.bits) << 16);
}

}  // namespace

/// Some rows of an RmsNorm.
template <typename T>
struct RmsNormRows {
  const T* x;
  T* y;
  const float* weight;  ///< null: zeros
  std::int64_t rows, x_stride, y_stride;
  std::int64_t slices, width;  ///< a row is `slices` slices of `width`
  float eps, weight_offset;
  bool add;
  float factor;  ///< of sums
};

/// The passes over a whole row of logits that sampling consists of; one body per ISA level.
struct LargestLogit {
  float value;
  std::int32_t index;  ///< the first of equals
  bool is_number;      ///< false: some logit is NaN, and the rest means nothing
};

/// weights[i] = exp((logits[i] - largest) * inverse_temperature), those below `floor` become 0.
struct LogitWeights {
  const float* logits;
  std::int32_t count;
  float largest, inverse_temperature, floor;
  float* weights;  ///< or null: only the sum is wanted
};

template <Isa isa>
LargestLogit largest_logit(const float* logits, std::int32_t count);
template <Isa isa>
double weigh_logits(const LogitWeights& job);  ///< returns the sum of the weights

/// Holds a share of a MambaScan: of every span, the share of the groups of state rows.
template <typename T, typename S>
struct SsdShare : RecurrenceShare<T, S>, SsdShape {
  const T* dt = nullptr;
  const float* d = nullptr;
  std::int64_t dt_stride = 0, heads = 0;
};

/// Holds a share of a SelectiveScan: of every span, the share of the vectors of channels. A channel
/// is a head of one row.
template <typename T, typename S>
struct S6Share : RecurrenceShare<T, S> {
  const T* dt = nullptr;
  const T* b = nullptr;
  const T* c = nullptr;
  const float* d = nullptr;
  std::int64_t dt_stride = 0, b_stride = 0, c_stride = 0, channels = 0;
};

/// Reads all bytes (a multiple of 1024); the answer depends on each, so that none is left out.
std::uint64_t read_all_avx512(const std::byte* bytes, std::size_t count);
std::uint64_t read_all_avx2(const std::byte* bytes, std::size_t count);
std::uint64_t read_all_plain(const std::byte* bytes, std::size_t count);

/// Runs `rounds` rounds of independent dot products in registers, adds something that depends on
/// them to `sink`, and returns the operations done.
std::int64_t dot_bf16_avx512(std::int64_t rounds, float& sink);
std::int64_t dot_f32_avx512(std::int64_t rounds, float& sink);
std::int64_t dot_f32_avx2(std::int64_t rounds, float& sink);
std::int64_t dot_f32_plain(std::int64_t rounds, float& sink);

}  // namespace hyb::kernels
