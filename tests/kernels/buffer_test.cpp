#include "kernels/buffer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace buffer_test {

using namespace hyb;
using namespace hyb::kernels;

TEST_SUITE("kernels/buffer") {
  TEST_CASE("bytes are zero, aligned and ours") {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{9} << 20}) {
      Buffer buffer(Device::cpu, bytes);
      CHECK(buffer.bytes() == bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0);
      CHECK(std::all_of(buffer.data(), buffer.data() + bytes,
                        [](std::byte byte) { return byte == std::byte{0}; }));
      std::fill_n(buffer.data(), bytes, std::byte{7});
    }
  }

  TEST_CASE("moves hand the bytes over; nothing is left") {
    Buffer first(Device::cpu, 100);
    std::byte* const bytes = first.data();
    Buffer second = std::move(first);
    CHECK(second.data() == bytes);
    CHECK(first.data() == nullptr);
    Buffer third;
    third = std::move(second);
    CHECK(third.data() == bytes);
    CHECK(third.bytes() == 100);
    CHECK(Buffer(Device::cpu, 0).data() == nullptr);
  }

  TEST_CASE("more than the machine has is a memory error that names the size") {
    try {
      const Buffer buffer(Device::cpu, std::size_t{1} << 46);
      FAIL("64 TiB were given");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::memory);
      CHECK(std::string(error.what()).find("70368744177664 bytes") != std::string::npos);
    }
    if (!has_cuda) CHECK_THROWS_AS(Buffer(Device::cuda, 16), Error);
  }

  TEST_CASE("a tensor lies within its buffer") {
    const Buffer buffer(Device::cpu, 64);
    const Tensor tensor = buffer.tensor(16, DType::f32, {3, 4});
    CHECK(tensor.as<std::byte>() == buffer.data() + 16);
    CHECK(tensor.row_stride == 4);
    CHECK_THROWS_AS(buffer.tensor(20, DType::f32, {3, 4}), Error);
    CHECK_THROWS_AS(buffer.tensor(65, DType::u8, {0}), Error);
    CHECK_THROWS_AS(buffer.tensor(0, DType::f32, {INT64_MAX / 2, 16}), Error);
  }
}

}  // namespace buffer_test
