#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/queue.h"

namespace hyb::kernels {

/// A matrix [N,K] (or E of them, [E,N,K]) as linear, embed and moe read it: y = x * W^T.
///
/// Formats
///   rows    the published row-major order [E][N][K]: a view of bytes that outlive the weight (a
///           mapped file), read by the plain loops only; or bytes of its own on a card
///   panels  64 outputs side by side, so that one loop over k serves every row count in one order:
///             bf16  [E][ceil(N/64)][ceil(K/2)][64][2]
///             f32   [E][ceil(N/64)][K][64]
///           what lies past N or K is zero. Owns its bytes, in the machine's memory.
enum class WeightFormat : std::uint8_t { rows, panels };

/// Rows of a published tensor that follow each other in it; bytes may be unaligned.
struct WeightStrip {
  DType dtype;         ///< f32, bf16 or f16
  std::int64_t first;  ///< of the source's experts * rows rows
  std::int64_t rows;
  const std::byte* bytes;
};

/// Where a weight's numbers are read from: one published tensor, or rows of several, in the order
/// that the weight has them.
struct WeightSource {
  std::int64_t experts;  ///< 1 for a plain matrix
  std::int64_t rows, columns;
  std::vector<WeightStrip> strips;

  /// Without rows yet.
  WeightSource(std::int64_t expert_count, std::int64_t row_count, std::int64_t column_count);
  /// One tensor as it lies. Throws as append does.
  WeightSource(DType dtype, std::int64_t expert_count, std::int64_t row_count,
               std::int64_t column_count, std::span<const std::byte> bytes);

  /// Adds rows behind those that are there. Throws Error(model) if `bytes` are not
  /// [count,columns] of a dtype that is read.
  void append(DType dtype, std::int64_t count, std::span<const std::byte> bytes);

  /// The same with rows first .. first+count-1 of another source as wide as this one.
  void append(const WeightSource& from, std::int64_t first, std::int64_t count);

  /// The strip that holds a row of all experts' rows.
  const WeightStrip& strip_of(std::int64_t row) const;
};

class Weight {
 public:
  static constexpr std::int64_t panel_rows = 64;

  Weight() = default;

  /// A view of one strip: no byte is copied or read.
  static Weight view(const WeightSource& source);

  /// What the queue's device reads fastest, of `dtype` (bf16 or f32): panels, on a card rows. Made
  /// by all threads of the queue in one pass over the source.
  static Weight pack(Queue& queue, const WeightSource& source, DType dtype);

  WeightFormat format() const { return format_; }
  DType dtype() const { return dtype_; }
  std::int64_t experts() const { return experts_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  /// Bytes that this weight owns: 0 for a view.
  std::size_t owned_bytes() const { return owned_.bytes(); }

  /// First byte of expert e's matrix.
  const std::byte* expert(std::int64_t e) const;

  /// The reverse of both formats: row n of expert e as K floats; not for a weight on a card. For
  /// tests and embed's plain loop.
  void read_row(std::int64_t e, std::int64_t n, std::span<float> out) const;

 private:
  WeightFormat format_ = WeightFormat::rows;
  DType dtype_ = DType::f32;
  std::int64_t experts_ = 0, rows_ = 0, columns_ = 0;
  const std::byte* view_ = nullptr;
  Buffer owned_;
};

}  // namespace hyb::kernels
