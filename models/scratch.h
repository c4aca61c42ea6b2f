#pragma once

#include <cstddef>
#include <initializer_list>

#include "core/base/error.h"
#include "kernels/buffer.h"

namespace hyb::models {

/// Activations of one step: tensors are taken one behind the other and given back together, by
/// returning to a mark. Nothing is allocated while a step runs.
class Scratch {
 public:
  static constexpr std::size_t alignment = 64;

  Scratch() = default;
  Scratch(kernels::Device device, std::size_t bytes) : buffer_(device, bytes) {}

  /// Space that a tensor of so many bytes takes.
  static constexpr std::size_t padded(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
  }

  /// The same of a tensor [tokens, columns].
  static std::size_t space(DType dtype, std::int64_t tokens, std::int64_t columns) {
    return padded(static_cast<std::size_t>(tokens * columns) * size_of(dtype));
  }

  kernels::Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) {
    std::size_t bytes = size_of(dtype);
    for (const std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
    const std::size_t offset = used_;
    used_ += padded(bytes);
    require(used_ <= buffer_.bytes(), "scratch: every part states what it takes");
    return buffer_.tensor(offset, dtype, shape);
  }

  std::size_t mark() const { return used_; }
  void return_to(std::size_t mark) { used_ = mark; }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  kernels::Buffer buffer_;
  std::size_t used_ = 0;
};

/// Gives back at the end of its life what was taken during it.
class ScratchFrame {
 public:
  explicit ScratchFrame(Scratch& scratch) : scratch_(scratch), mark_(scratch.mark()) {}
  ~ScratchFrame() { scratch_.return_to(mark_); }
  ScratchFrame(const ScratchFrame&) = delete;
  ScratchFrame& operator=(const ScratchFrame&) = delete;

 private:
  Scratch& scratch_;
  std::size_t mark_;
};

}  // namespace hyb::models
