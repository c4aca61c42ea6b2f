#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace hyb::kernels {

/// The pages of one layer, and where a step's tokens are in them: token t of span r is at position
/// p = position[r] + t - span_begin[r] of its sequence, in place p mod page_tokens of page
/// pages[page_begin[r] + p / page_tokens].
///
/// shapes  arena [pages, page_tokens * a token's numbers], row_stride from page to page
///         span_begin, page_begin [R+1]   position [R]   pages [page_begin[R]]
/// types   arena: f32, bf16 or F8_E4M3   tables: i32
struct KvPages {
  Tensor arena, span_begin, position, page_begin, pages;
  std::int64_t page_tokens = 16;

  std::int64_t spans() const { return span_begin.dim(0) - 1; }
  /// The pages of a span; as all that follows, for tables on the CPU.
  const std::int32_t* table(std::int64_t span) const {
    return pages.as<std::int32_t>() + page_begin.as<std::int32_t>()[span];
  }

  /// body(token, its position, its span's pages) of tokens begin .. end-1.
  template <typename Body>
  void each_token(std::int64_t begin, std::int64_t end, const Body& body) const {
    const auto* const first = span_begin.as<std::int32_t>();
    std::int64_t span = 0;
    for (std::int64_t token = begin; token < end; ++token) {
      while (first[span + 1] <= token) ++span;
      body(token, position.as<std::int32_t>()[span] + token - first[span], table(span));
    }
  }
};

}  // namespace hyb::kernels
