#pragma once

#include <cstddef>
#include <initializer_list>

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Owns bytes on a device, zeroed, aligned to 4096 (a card's: to 256). Move-only. Untouched pages
/// of a CPU buffer cost no memory. Throws Error(memory) naming the size when the machine has not
/// enough.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device device, std::size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// A view at `offset` bytes; throws when it would reach past the end.
  Tensor tensor(std::size_t offset, DType dtype, std::initializer_list<std::int64_t> shape) const;

 private:
  Device device_ = Device::cpu;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hyb::kernels
