#include "kernels/cuda/memory.h"

#include <fmt/format.h>

#include "kernels/cuda/check.h"

namespace hyb::kernels::cuda {

MemoryInfo memory_info() {
  MemoryInfo info{};
  check(cudaMemGetInfo(&info.free, &info.total), "cudaMemGetInfo");
  return info;
}

std::byte* allocate(std::size_t bytes) {
  std::byte* at = nullptr;
  const cudaError_t error = cudaMalloc(&at, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // forgets it: what is asked for next may be smaller
    const MemoryInfo info = memory_info();
    throw Error(ErrorKind::memory,
                fmt::format("memory: the device has {} of {} bytes left, {} ({:.2f} GiB) are asked "
                            "for; use a smaller model, --context or --memory",
                            info.free, info.total, bytes, static_cast<double>(bytes) / (1 << 30)));
  }
  check(error, "cudaMalloc");
  check(cudaMemset(at, 0, bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return at;
}

void release(std::byte* at) noexcept { cudaFree(at); }

void upload(Stream& stream, std::byte* to, std::span<const std::byte> from) {
  check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream.handle()),
        "cudaMemcpyAsync");
  stream.wait();
}

void download(Stream& stream, std::span<std::byte> to, const std::byte* from) {
  check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream.handle()),
        "cudaMemcpyAsync");
  stream.wait();
}

void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.handle()),
        "cudaMemcpyAsync");
}

}  // namespace hyb::kernels::cuda
