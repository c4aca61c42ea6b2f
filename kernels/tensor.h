#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "core/base/dtype.h"
#include "core/base/error.h"

namespace hyb::kernels {

/// A non-owning typed view of up to four dimensions, row-major, last fastest. Everything after the
/// first dimension is contiguous; `row_stride` elements lie between two values of the first, so
/// that the columns of a wider matrix, or one layer's part of every state slot, are views too.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, 4> dims{1, 1, 1, 1};
  std::int64_t row_stride = 0;

  Tensor() = default;
  Tensor(void* bytes, DType type, std::initializer_list<std::int64_t> shape)
      : data(bytes), dtype(type) {
    require(shape.size() >= 1 && shape.size() <= 4, "tensor: rank is 1 to 4");
    for (const std::int64_t dim : shape) dims[static_cast<std::size_t>(rank++)] = dim;
    row_stride = dims[1] * dims[2] * dims[3];
  }

  bool empty() const { return data == nullptr; }
  std::int64_t dim(int i) const { return dims[static_cast<std::size_t>(i)]; }
  std::int64_t size() const { return dims[0] * dims[1] * dims[2] * dims[3]; }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  template <typename T>
  T* row(std::int64_t i) const {
    return static_cast<T*>(data) + i * row_stride;
  }

  /// Rows begin .. begin+count-1 of the first dimension.
  Tensor rows(std::int64_t begin, std::int64_t count) const {
    Tensor view = *this;
    view.data = static_cast<std::byte*>(data) +
                begin * row_stride * static_cast<std::int64_t>(size_of(dtype));
    view.dims[0] = count;
    return view;
  }

  /// Columns begin .. begin+count-1 of a matrix.
  Tensor columns(std::int64_t begin, std::int64_t count) const {
    require(rank == 2, "tensor: columns() is for matrices");
    Tensor view = *this;
    view.data = static_cast<std::byte*>(data) + begin * static_cast<std::int64_t>(size_of(dtype));
    view.dims[1] = count;
    return view;
  }
};

}  // namespace hyb::kernels
