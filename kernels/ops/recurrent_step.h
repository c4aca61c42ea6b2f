#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/causal_conv.h"
#include "kernels/ops/check.h"
#include "kernels/tensor.h"

/// What mamba_step and delta_step do alike before their recurrences. A Step is the struct of
/// either.
namespace hyb::kernels {

/// The first rows of a step, those that have a sequence, as spans of one token each.
class SingleTokenSpans {
 public:
  /// Rows without a slot stand last, and no row goes on where another ends: else an error of
  /// `check`.
  SingleTokenSpans(const Check& check, const Tensor& read_slot, const Tensor& write_slot);

  std::int64_t count() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  Tensor begins() { return {begins_.data(), DType::i32, {count() + 1}}; }
  Tensor rows_of(const Tensor& tensor) const { return tensor.rows(0, count()); }

  /// A part of the step (CausalConv, Ssd, DeltaRule) for these rows; what it reads besides x is
  /// left to the caller.
  template <typename Part>
  Part narrowed(Part part) {
    part.x = rows_of(part.x);
    part.span_begin = begins();
    part.read_slot = rows_of(part.read_slot);
    part.write_slot = rows_of(part.write_slot);
    part.y = rows_of(part.y);
    return part;
  }

 private:
  std::vector<std::int32_t> begins_;
};

/// Of all rows, without spans.
template <typename Step>
CausalConv convolution_of(const Step& op) {
  return {.x = op.x,
          .weight = op.conv_weight,
          .bias = op.conv_bias,
          .windows = op.windows,
          .span_begin = {},
          .read_slot = op.read_slot,
          .write_slot = op.write_slot,
          .y = op.convolved};
}

}  // namespace hyb::kernels
