#pragma once

#include <cstddef>
#include <cstdint>

namespace hyb::kernels {

/// How CUDA's chunked delta_rule is cut: every span into chunks of 64 tokens from its first one on.
/// Chunk i of span r has place span_begin[r] / 64 + r + i, which no other chunk has; so a step has
/// places enough for all of its chunks, however its tokens are dealt to spans, and nothing is
/// counted that stands in a table.
inline constexpr std::int64_t delta_chunk_tokens = 64;

inline std::int64_t delta_chunk_places(std::int64_t tokens, std::int64_t spans) {
  return tokens / delta_chunk_tokens + spans;
}

/// What one launch leaves for the next of a chunk of a head: two matrices of bf16 [64,64], and the
/// tokens' factors.
inline constexpr std::int64_t delta_matrix_size = delta_chunk_tokens * delta_chunk_tokens;
inline constexpr std::int64_t delta_factors_size = 3 * delta_chunk_tokens + 4;

inline std::int64_t delta_chunk_bytes(std::int64_t places, std::int64_t heads) {
  return places * heads * (2 * delta_matrix_size * 2 + delta_factors_size * 4);
}

}  // namespace hyb::kernels
