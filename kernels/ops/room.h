#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace hyb::kernels {

/// Tensors one behind the other in an op's workspace, aligned to 64 bytes; without one only their
/// bytes are counted.
class Room {
 public:
  explicit Room(std::byte* base) : base_(base) {}

  Tensor take(DType dtype, std::int64_t rows, std::int64_t columns) {
    const Tensor tensor(base_ == nullptr ? nullptr : base_ + bytes_, dtype, {rows, columns});
    const std::size_t bytes = static_cast<std::size_t>(rows * columns) * size_of(dtype);
    bytes_ += (bytes + alignment - 1) / alignment * alignment;
    return tensor;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t alignment = 64;
  std::byte* base_;
  std::size_t bytes_ = 0;
};

}  // namespace hyb::kernels
