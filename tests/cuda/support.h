#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/cuda/launch.h"
#include "kernels/weight.h"
#include "tests/cuda/schedules.h"
#include "tests/kernels/support.h"

namespace hyb::kernels::testing {

/// Copies to the card and waits, until any stream finds the bytes there: a copy from memory that is
/// not pinned may return before they have arrived, and the streams of queues do not wait for the
/// default stream's work.
inline void copy_to_card(void* to, std::span<const std::byte> bytes) {
  cuda::check(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  cuda::check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

/// The same of a byte: cudaMemset does not wait.
inline void fill_card(void* at, int value, std::size_t bytes) {
  cuda::check(cudaMemset(at, value, bytes), "cudaMemset");
  cuda::check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

/// A copy of a test tensor on the device: guards, strides and all, so that what a kernel writes
/// where it may not comes back too.
class DeviceTensor {
 public:
  explicit DeviceTensor(const TestTensor& source)
      : host_(source), bytes_(source.everything().size()) {
    cuda::check(cudaMalloc(&data_, bytes_), "cudaMalloc");
    copy_to_card(data_, source.everything());
  }
  ~DeviceTensor() { cudaFree(data_); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  operator Tensor() const {  // NOLINT: ops are called with these
    Tensor view = host_.view();
    view.data = data_ + (static_cast<const std::byte*>(view.data) - host_.everything().data());
    return view;
  }

  /// Other values, of the same shape and strides.
  void set(const TestTensor& source) { copy_to_card(data_, source.everything()); }

  /// The content on the device; the caller has waited for it.
  TestTensor fetch() const {
    TestTensor copy = host_;
    auto* const bytes = const_cast<std::byte*>(copy.everything().data());
    cuda::check(cudaMemcpy(bytes, data_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return copy;
  }

 private:
  TestTensor host_;
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

/// An i32 table on the device.
class DeviceTable {
 public:
  explicit DeviceTable(const std::vector<std::int32_t>& values) : count_(values.size()) {
    cuda::check(cudaMalloc(&data_, count_ * sizeof(std::int32_t)), "cudaMalloc");
    copy_to_card(data_, std::as_bytes(std::span(values)));
  }
  ~DeviceTable() { cudaFree(data_); }
  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;
  operator Tensor() const {  // NOLINT: ops are called with these
    return {data_, DType::i32, {static_cast<std::int64_t>(count_)}};
  }
  std::vector<std::int32_t> fetch() const {
    std::vector<std::int32_t> values(count_);
    cuda::check(
        cudaMemcpy(values.data(), data_, count_ * sizeof(std::int32_t), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    return values;
  }

 private:
  std::int32_t* data_ = nullptr;
  std::size_t count_;
};

/// A weight's published rows, here and on the device.
class TestWeight {
 public:
  TestWeight(DType dtype, std::int64_t rows, std::int64_t columns, std::vector<std::byte> bytes)
      : bytes_(std::move(bytes)) {
    host = Weight::view({dtype, 1, rows, columns, bytes_});
    cuda::check(cudaMalloc(&data_, bytes_.size()), "cudaMalloc");
    copy_to_card(data_, bytes_);
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
