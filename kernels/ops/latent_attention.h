#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op_shapes.h"
#include "kernels/ops/kv_pages.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

inline constexpr std::int64_t latent_width_max = 1024;

/// Pages of latents: of every token one row [turned | latent] that all heads read, `turned` numbers
/// that rope turns and `latent` that keys and values are made of. A page is its tokens' rows, one
/// after the other; a page may be copied as bytes, and rows that no token has reached yet are never
/// read.
///
/// Puts a step's rows into the pages of one layer.
///
/// shapes  rows [T, width]; rows may be strided   of a token pages have `width` numbers
/// types   rows: f32 or bf16
/// numbers as kv_write rounds them
/// writes  the named places, nothing else; no two tokens may share a place
struct LatentWrite {
  Tensor rows;
  KvPages kv;
};

void latent_write(Queue& queue, const LatentWrite& op);

/// Causal softmax attention of a step's queries over these rows c:
///
///   s[p]     = scale * (turned[t,h] . c[p, :turned] + latent[t,h] . c[p, turned:])   p = 0 .. own
///   y[t,h,:] = sum_p softmax_p(s) * c[p, turned:], with a gate times sigmoid(gate[t,h])
///
/// shapes  turned [T, heads*stride], each head's numbers first in its `stride`
///         gate [T, heads] or empty
///         latent, y [T, heads*latent_width]; rows may be strided   pages as above, with
///         width = turned_width + latent_width, at most latent_width_max
/// types   turned, latent, gate, y: f32 or bf16, the same
/// numbers scores, weights and sums in f32, y rounded once. Keys are taken in tiles counted from
///         position 0: an answer depends on no other query of the step, and on no thread. The
///         vector routes are for pages of f32 and bf16
/// writes  y; y may not alias the queries
struct LatentAttention {
  Tensor turned, latent;
  KvPages kv;
  Tensor y;
  LatentShape shape = {};
  Tensor gate = {};
  Tensor workspace = {};  ///< for CUDA, as in PagedAttention: with less of it blocks share no keys
  std::int64_t positions = 0;  ///< as in PagedAttention
};

void latent_attention(Queue& queue, const LatentAttention& op);

/// With which blocks of a card share the keys of up to `tokens` single tokens; on the CPU none.
std::size_t latent_workspace_bytes(Device device, std::int64_t tokens, std::int64_t heads,
                                   std::int64_t positions);

}  // namespace hyb::kernels
