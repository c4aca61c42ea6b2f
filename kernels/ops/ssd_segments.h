#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hyb::kernels {

/// How CUDA's chunked ssd is cut. A block owns a part of a head's rows in one span, or in one
/// segment of it where spans are too few to fill a card: segments' last states from zeros, then
/// what really stands at their beginnings, then the answers. All of it follows from what the host
/// knows, so that a graph stays right when the tables change.
inline constexpr std::int64_t ssd_chunk_tokens = 64;
inline constexpr std::int64_t ssd_segment_tokens_min = 4 * ssd_chunk_tokens;
inline constexpr std::int64_t ssd_blocks_full = 264;    ///< from here on a large card is full
inline constexpr std::int64_t ssd_blocks_wanted = 528;  ///< what segments aim at

/// Rows of a head that a block takes, so that its state fits into registers and its tiles into
/// shared memory; 0 where the chunked form has no kernel for the shape.
inline std::int64_t ssd_part_rows(std::int64_t rows, std::int64_t columns) {
  if (columns != 64 && columns != 128 && columns != 256) return 0;
  if (rows != 32 && rows != 64 && rows != 80 && rows != 128) return 0;
  if (columns == 256) return rows == 80 ? 16 : 32;
  return rows == 128 ? 64 : rows;
}

struct SsdSegments {
  std::int64_t tokens;  ///< of a segment, counted from its span's first token; 0: spans are whole
  std::int64_t count;   ///< at most so many in all spans together
};

inline SsdSegments ssd_segments(std::int64_t tokens, std::int64_t spans, std::int64_t heads,
                                std::int64_t rows, std::int64_t columns) {
  const std::int64_t blocks = heads * (rows / ssd_part_rows(rows, columns));  // of a segment
  if (spans * blocks >= ssd_blocks_full) return {0, spans};
  const std::int64_t wanted = std::max<std::int64_t>(ssd_blocks_wanted / blocks, 1);
  const std::int64_t length = std::max((tokens + wanted - 1) / wanted, ssd_segment_tokens_min);
  const std::int64_t whole = (length + ssd_chunk_tokens - 1) / ssd_chunk_tokens * ssd_chunk_tokens;
  if (tokens <= whole) return {0, spans};
  return {whole, tokens / whole + spans};
}

/// No call has more segments.
inline std::int64_t ssd_segments_max(std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  const std::int64_t part_rows = ssd_part_rows(rows, columns);
  if (part_rows == 0 || heads * (rows / part_rows) >= ssd_blocks_full) return 0;
  const std::int64_t blocks = heads * (rows / part_rows);
  return std::max<std::int64_t>(ssd_blocks_wanted / blocks, 1) + (ssd_blocks_full - 1) / blocks;
}

/// A state and a decay for every head, in f32.
inline std::size_t ssd_segment_bytes(std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(heads * (rows * columns + 1)) * sizeof(float);
}

}  // namespace hyb::kernels
