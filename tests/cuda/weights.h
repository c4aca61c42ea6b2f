#pragma once

#include <vector>

#include "kernels/weight.h"
#include "tests/cuda/support.h"

namespace hyb::kernels::testing {

/// A weight's published rows, here and on the device.
class TestWeight {
 public:
  TestWeight(DType dtype, std::int64_t rows, std::int64_t columns, std::vector<std::byte> bytes)
      : bytes_(std::move(bytes)) {
    host = Weight::view({dtype, 1, rows, columns, bytes_});
    cuda::check(cudaMalloc(&data_, bytes_.size()), "cudaMalloc");
    cuda::check(cudaMemcpy(data_, bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice),
                "cudaMemcpy");
    device = Weight::view({dtype, 1, rows, columns, std::span(data_, bytes_.size())});
  }
  ~TestWeight() { cudaFree(data_); }
  TestWeight(const TestWeight&) = delete;
  TestWeight& operator=(const TestWeight&) = delete;

  Weight host, device;

 private:
  std::vector<std::byte> bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace hyb::kernels::testing
