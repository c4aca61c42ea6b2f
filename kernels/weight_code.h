#pragma once

#include <cstdint>

namespace hyb::kernels {

/// Storage of a weight's numbers.
///   plain  as its dtype says: f32, bf16 or f16
///   fp8    F8_E4M3 as published, with an f32 scale for each row and group of 128 columns, or of
///          1024 where published scales are of whole rows or tensors
///   bits12 bf16 in 12 bits, exactly (linear/bits12.h, on a card linear/bits12_rows.h)
///   q8     8 bits, groups of 32 columns with a bf16 scale: 8.5 bits for a number
///   q4     4 bits that choose one of 16 levels, groups of 32 columns with a bf16 scale: 4.5 bits
///   mxfp4  E2M1 as published, groups of 32 columns with a scale of E8M0: 4.25 bits
///   blocks codes, scales and minima of blocks of a GGUF file, exactly (linear/gguf_blocks.h).
///          Several types, one below the other, are a weight of several parts.
///   groups whole numbers of 4 or 8 bits, or E2M1, as published, with scales (and zero points) of
///          groups of columns, exactly (GroupCodes, on a card linear/gguf_rows.h)
/// A number is its code's level times its group's scale, less the group's minimum where it has one.
/// A card's kernels read blocks and groups by the bits of their codes (linear/gguf_rows.cuh): no
/// weight has blocks5 and those after it, which are here since nvcc can name nothing but
/// enumerators among the arguments of a kernel's template.
enum class WeightCode : std::uint8_t {
  plain,
  fp8,
  q8,
  q4,
  bits12,
  mxfp4,
  blocks,
  groups,
  blocks5 = 16,
  blocks6,
  blocks8,
  blocks_nvfp4
};

/// Says whether a code has 4 bits and chooses one of 16 levels, else 8 (or 12).
constexpr bool has_nibbles(WeightCode code) {
  return code == WeightCode::q4 || code == WeightCode::mxfp4;
}

/// Says what packing shall make of a source. MXFP4 stays mxfp4 with all of them, and so do blocks
/// of GGUF files and published groups; those of either that card_keeps (linear/gguf_rows.h) does
/// not take are on a card as if they were published as bf16.
///   none  what was published: F8_E4M3 stays fp8
///   q8    q8; F8_E4M3, which takes as much, stays fp8
///   q4    q4
///   bits12  F8_E4M3 stays fp8; all else becomes bf16 in bits12 where that pays, else it stays
///           plain
enum class Quantize : std::uint8_t { none, q8, q4, bits12 };

}  // namespace hyb::kernels
