#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/queue.h"
#include "kernels/weight_code.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {

struct Bits12Patch;

/// A matrix [N,K] (or E of them, [E,N,K]) as linear, embed and moe read it: y = x * W^T.
///
/// Formats
///   rows    the published row-major order [E][N][K]: a view of bytes that outlive the weight (a
///           mapped file), read by the plain loops only; or bytes of its own on a card, codes as
///           CodedRowsShape in linear/pack.h has them, bits12 as linear/bits12_rows.h, blocks as
///           linear/gguf_rows.h
///   panels  64 outputs side by side, so that one loop over k serves every row count in one order:
///             bf16  [E][ceil(N/64)][ceil(K/2)][64][2]
///             f32   [E][ceil(N/64)][K][64]
///             f16   [E][ceil(N/64)][K, an even number][64]
///             codes see CodedShape in linear/pack.h, of bits12 Bits12Shape in linear/bits12.h
///           what lies past N or K is zero. Owns its bytes, in the machine's memory.
enum class WeightFormat : std::uint8_t { rows, panels };

class Weight {
 public:
  static constexpr std::int64_t panel_rows = 64;

  Weight() = default;

  /// A view of one strip: no byte is copied or read.
  static Weight view(const WeightSource& source);

  /// Packs what the queue's device reads fastest: panels, on a card rows. It is made by all threads
  /// of the queue in one pass over the source. `dtype` is bf16, for activations of bf16, or for
  /// those of f32 f32 or f16. Codes are for bf16 only; with the others, and where F8_E4M3 or MXFP4
  /// is mixed with other types, they become plain. How far a number then is from the published one:
  ///   plain  rounded to `dtype`   fp8  nothing: code and scale are the published ones
  ///   mxfp4  nothing; a scale of 2^-127 may count as zero
  ///   blocks nothing: what read_gguf_values() gives, bit for bit
  ///   groups nothing without zero points; with them products in f32 are rounded
  ///   q8, q4 as quantize() says (linear/quantize.h), times its group's largest size
  /// A scale that is no finite number makes its numbers NaN.
  static Weight pack(Queue& queue, const WeightSource& source, DType dtype,
                     Quantize quantize = Quantize::none);

  /// A card's memory for a weight, as pack() makes it, whose numbers are whatever the memory holds:
  /// for launches that are recorded only. In 12 bits it has no patches.
  static Weight reserve(WeightCode code, DType dtype, std::int64_t experts, std::int64_t rows,
                        std::int64_t columns);

  WeightFormat format() const { return format_; }
  WeightCode code() const { return code_; }
  /// Columns that share a scale, of a weight with codes; else 0.
  std::int64_t group() const { return group_; }
  /// Returns the type of a weight in blocks.
  GgufType type() const { return type_; }
  /// Returns the groups of a weight in groups.
  const GroupCodes& groups() const { return groups_; }
  /// Returns, of a weight in groups whose columns lie by their groups: the column of x that each
  /// one of an expert's matrix is multiplied with, [columns], on the weight's device; else empty.
  std::span<const std::int32_t> order(std::int64_t e) const {
    if (order_.bytes() == 0) return {};
    return {reinterpret_cast<const std::int32_t*>(order_.data()) + e * columns_,
            static_cast<std::size_t>(columns_)};
  }
  /// Returns a weight for each run of rows, from the top, where rows are in blocks of several types
  /// or their columns are in groups in several orders. Only rows(), columns(), dtypes,
  /// owned_bytes(), read_row() and linear() take such a weight.
  std::span<const Weight> parts() const { return parts_; }
  /// Returns the type of the numbers, or with codes of the activations they are for.
  DType dtype() const { return dtype_; }
  /// Returns the type of the activations that panels are for: bf16 or f32.
  DType activation_dtype() const { return dtype_ == DType::bf16 ? DType::bf16 : DType::f32; }
  std::int64_t experts() const { return experts_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  /// Bytes that this weight owns: 0 for a view.
  std::size_t owned_bytes() const;
  /// A weight in bits12 in panels has these: how many patches there are, and the list of all
  /// panels'.
  std::int64_t patch_count() const;
  const Bits12Patch* patches() const {
    return reinterpret_cast<const Bits12Patch*>(patches_.data());
  }

  /// First byte of expert e's matrix.
  const std::byte* expert(std::int64_t e) const;

  /// The reverse of all formats: row n of expert e as K floats; not for a weight on a card. For
  /// tests and embed's plain loop.
  void read_row(std::int64_t e, std::int64_t n, std::span<float> out) const;

 private:
  /// The type, the shape and what codes there are; no bytes.
  Weight(WeightCode code, DType dtype, const WeightSource& source);
  static Weight pack_parts(Queue& queue, const WeightSource& source, DType dtype,
                           Quantize quantize);
  void pack_codes(Queue& queue, const WeightSource& source);
  /// False: it does not pay, and nothing is changed.
  bool pack_bits12(Queue& queue, const WeightSource& source);

  WeightFormat format_ = WeightFormat::rows;
  WeightCode code_ = WeightCode::plain;
  std::int64_t group_ = 0;
  DType dtype_ = DType::f32;
  std::int64_t experts_ = 0, rows_ = 0, columns_ = 0;
  const std::byte* view_ = nullptr;
  Buffer owned_;
  Buffer patches_;
  GgufType type_ = GgufType::f32;
  GroupCodes groups_;
  Buffer order_;  ///< of all experts
  std::vector<Weight> parts_;
};

}  // namespace hyb::kernels
