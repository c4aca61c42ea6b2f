#pragma once

#include <cstddef>
#include <cstdint>

namespace hyb::kernels {

/// Where the elements of a page lie: kv head after kv head, each with its keys, then its values.
///
///   bf16, fp8   keys [head_dim/2][page_tokens][2]   values [page_tokens/2][head_dim][2]
///   f32         keys [head_dim][page_tokens]        values [page_tokens][head_dim]
///
/// so that one vector holds the same pair of dimensions of neighbouring keys, or the same pair of
/// positions of neighbouring value dimensions: what a pairwise dot product wants.
struct KvLayout {
  std::int64_t head_dim, page_tokens;
  std::int64_t pair;  ///< 2, of f32 1

  KvLayout(std::int64_t dim, std::int64_t tokens, std::size_t element_bytes)
      : head_dim(dim), page_tokens(tokens), pair(element_bytes == 4 ? 1 : 2) {}

  std::int64_t head_size() const { return 2 * head_dim * page_tokens; }
  std::int64_t key(std::int64_t place, std::int64_t i) const {
    return (i / pair * page_tokens + place) * pair + i % pair;
  }
  std::int64_t value(std::int64_t place, std::int64_t i) const {
    return head_dim * page_tokens + (place / pair * head_dim + i) * pair + place % pair;
  }
};

}  // namespace hyb::kernels
