#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/linear/gguf_blocks.h"
#include "kernels/weight_source.h"

namespace hyb::kernels::testing {

inline const GgufBlock& block_of(GgufType type) {
  return *gguf_block(static_cast<std::uint32_t>(type));
}

/// Rows of a file, of blocks of random bytes with scales that are numbers of moderate size.
struct Stored {
  Stored(GgufType type, std::int64_t experts, std::int64_t rows, std::int64_t width, unsigned seed)
      : block(block_of(type)),
        columns(width),
        bytes(static_cast<std::size_t>(experts * rows * row_bytes())),
        source(experts, rows, width) {
    std::mt19937 engine(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(engine());
    for (std::size_t at = 0; at < bytes.size(); at += block.bytes) {
      for (const std::size_t half : halves()) {
        const auto bits = static_cast<std::uint16_t>((engine() & 0x83ffU) | 0x2000U);
        std::memcpy(&bytes[at + half], &bits, sizeof(bits));
      }
      if (type == GgufType::mxfp4) bytes[at] = static_cast<std::byte>(120 + engine() % 4);
      if (type == GgufType::q8_0) bytes[at + 2 + engine() % 32] = std::byte{0x80};  // -128
    }
    source = WeightSource(block, experts, rows, width, bytes);
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;

  std::int64_t row_bytes() const { return columns / block.elements * block.bytes; }

  /// Where a block has its f16.
  std::vector<std::size_t> halves() const {
    switch (block.type) {
      case GgufType::q4_1:
      case GgufType::q5_1:
      case GgufType::q4_k:
      case GgufType::q5_k:
        return {0, 2};
      case GgufType::q2_k:
        return {80, 82};
      case GgufType::q3_k:
      case GgufType::q6_k:
      case GgufType::tq1_0:
      case GgufType::tq2_0:
        return {block.bytes - 2};
      case GgufType::mxfp4:
      case GgufType::nvfp4:
        return {};
      default:
        return {0};
    }
  }

  /// Of all experts' rows.
  std::vector<float> row(std::int64_t n) const {
    std::vector<float> values(static_cast<std::size_t>(columns));
    read_gguf_values(block.type, bytes.data() + n * row_bytes(), values);
    return values;
  }

  const GgufBlock& block;
  std::int64_t columns;
  std::vector<std::byte> bytes;
  WeightSource source;
};

}  // namespace hyb::kernels::testing
