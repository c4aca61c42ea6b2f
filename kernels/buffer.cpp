#include "kernels/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

#include "kernels/cuda/memory.h"

namespace hyb::kernels {
namespace {

constexpr std::size_t huge_pages_from_bytes = std::size_t{4} << 20;

std::byte* map_zeroed(std::size_t bytes) {
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw Error(
        ErrorKind::memory,
        fmt::format("memory: the machine does not give {} bytes ({:.2f} GiB) at once; use a "
                    "smaller model, --context or --memory",
                    bytes, static_cast<double>(bytes) / (1 << 30)));
  }
  // A hint only: where huge pages are off the bytes are the same.
  if (bytes >= huge_pages_from_bytes) madvise(mapped, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(mapped);
}

}  // namespace

Buffer::Buffer(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {
  if (bytes == 0) return;
  if (device == Device::cpu) {
    data_ = map_zeroed(bytes);
    return;
  }
  if constexpr (has_cuda) {
    data_ = cuda::allocate(bytes);
  } else {
    throw Error(ErrorKind::usage, "buffer: this build has no CUDA; use --device cpu");
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (device_ == Device::cpu) {
    munmap(data_, bytes_);
    return;
  }
  if constexpr (has_cuda) cuda::release(data_);
}

Tensor Buffer::tensor(std::size_t offset, DType dtype,
                      std::initializer_list<std::int64_t> shape) const {
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t dim : shape) {
    require(dim >= 0, "buffer: a dimension is not negative");
    require(!__builtin_mul_overflow(bytes, static_cast<std::size_t>(dim), &bytes),
            "buffer: a tensor's size fits 64 bits");
  }
  require(offset <= bytes_ && bytes <= bytes_ - offset, "buffer: a tensor lies within its buffer");
  return Tensor(data_ + offset, dtype, shape);
}

}  // namespace hyb::kernels
