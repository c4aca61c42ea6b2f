#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/kv_pages.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

inline constexpr std::int64_t attention_head_dim_max = 512;

/// Causal softmax attention of a step's queries over the pages that kv_write filled.
///
///   y[t,h] = sum_p softmax_p(scale * q[t,h] . k[p,g]) * v[p,g]      p = 0 .. own position
///
/// with a window of W positions p starts at own position - W + 1, with chunks of C positions at
/// floor(own position / C) * C, with both at the later one; places before it are not read, and
/// pages that are wholly before it for all tokens of a span need not exist (an entry of the table
/// is -1); with a softcap each score s = scale * q . k is softcap * tanh(s / softcap) instead; with
/// sinks the softmax has one more score, sinks[h], whose value is zero, with a gate y is rounded,
/// times sigmoid(gate[t,h]), a number for each dimension of the head or one for all of them, and
/// rounded again; with kv head g = h / (heads/kv_heads); the query of
/// token t in span r is at position position[r] + t - span_begin[r], and its own key must have been
/// written before.
///
/// shapes  q, y [T, heads*head_dim]; rows may be strided; head_dim is even and at most 512
///         page layout as in kv_write   sinks [heads] or empty
///         gate [T, heads*head_dim], [T, heads], or empty; rows may be strided
///         workspace: any bytes, or empty; what more of it buys is threads for long sequences
/// types   q, y, gate: f32 or bf16, the same   sinks: f32
/// numbers scores, weights and sums in f32, rounded when y is written; with keys of bf16 or
///         F8_E4M3 q is rounded to bf16 before the product, and the vector routes round each
///         weight exp(s - max) to bf16 before the product with its value; pages of F8_E4M3 answer
///         to the bit as pages of bf16 with the same numbers, on a card where head_dim is a
///         multiple of 16 (else only these have a vector route); the gate and its product in f32
/// writes  y and workspace; y may not alias q or gate
///
/// Keys are taken in tiles and tiles in runs of attention_run_keys, both counted from position 0,
/// and runs are merged in order, those that a token reaches: so the answer depends neither on how
/// many threads share the keys nor on the other queries of the step. Only the keys in reach are
/// read and paid for.
struct PagedAttention {
  Tensor q;
  KvPages kv;
  Tensor y;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1.0F;
  Tensor workspace = {};
  std::int64_t window = 0, chunk = 0;  ///< 0: none
  float softcap = 0.0F;                ///< 0: none; scores themselves, not those of sinks
  Tensor sinks = {};
  Tensor gate = {};
  /// No span ends after this many positions; 0: as many as kv.pages have room for. On a card it
  /// sizes the grid, so recorded work serves spans up to it, whatever their length is when it is
  /// replayed.
  std::int64_t positions = 0;

  /// Gates of a head.
  std::int64_t gate_dim() const { return gate.dim(1) == heads ? 1 : head_dim; }
};

inline constexpr std::int64_t attention_run_keys = 512;

/// Bytes with which the threads can share the keys of steps up to `tokens` single-token spans at
/// positions below `positions`, of which each reaches `keys` at most (a window or chunk; 0: all).
/// Fewer bytes change the speed only.
std::size_t attention_workspace_bytes(Device device, std::int64_t tokens, std::int64_t heads,
                                      std::int64_t head_dim, std::int64_t positions,
                                      std::int64_t keys = 0);

/// The rules that its arguments keep. Tables are read on the CPU only.
void check(const PagedAttention& op, Device device);

void paged_attention(Queue& queue, const PagedAttention& op);

}  // namespace hyb::kernels
