#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Puts the keys and values of a step into the pages of one attention layer.
///
/// Token t of span r is at position p = position[r] + t - span_begin[r] of its sequence, and goes
/// to place p mod page_tokens of page pages[page_begin[r] + p / page_tokens]. How a page is laid
/// out is private to kv_write and attention, the same at every ISA level; a page may be copied as
/// bytes, and places that no token has reached yet are never read.
///
/// shapes  k, v [T, kv_heads*head_dim]; rows may be strided
///         pages_of_layer [pages, 2*kv_heads*page_tokens*head_dim], row_stride from page to page
///         span_begin, page_begin [R+1]   position [R]   pages [page_begin[R]]
///         page_tokens and head_dim are even
/// types   k, v: f32 or bf16, the same   pages_of_layer: f32, bf16 or F8_E4M3
///         tables: i32
/// numbers copied; rounded to nearest, ties to even, where pages hold fewer bits than k and v;
///         F8_E4M3 has scale 1: sizes above 448 become 448, NaN stays NaN
/// writes  the named places, nothing else; no two tokens may share a place
struct KvWrite {
  Tensor k, v, pages_of_layer, span_begin, position, page_begin, pages;
  std::int64_t kv_heads = 0, head_dim = 0, page_tokens = 16;
};

void kv_write(Queue& queue, const KvWrite& op);

}  // namespace hyb::kernels
