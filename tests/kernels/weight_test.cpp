#include "kernels/weight.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/floats.h"
#include "kernels/weight_source.h"

namespace weight_test {

using namespace hyb;
using namespace hyb::kernels;

namespace {

/// Random bit patterns, so every kind of number, at an odd address.
class Source {
 public:
  Source(DType dtype, std::int64_t experts, std::int64_t rows, std::int64_t columns)
      : dtype_(dtype), experts_(experts), rows_(rows), columns_(columns) {
    std::mt19937 engine(static_cast<unsigned>(rows * 1000 + columns));
    bytes_.resize(static_cast<std::size_t>(experts * rows * columns) * size_of(dtype) + 1);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(engine());
  }
  WeightSource source() const {
    return {dtype_, experts_, rows_, columns_, std::span(bytes_).subspan(1)};
  }
  float value(std::int64_t e, std::int64_t n, std::int64_t k) const {
    return published_value(bytes_.data() + 1, dtype_, (e * rows_ + n) * columns_ + k);
  }

 private:
  DType dtype_;
  std::int64_t experts_, rows_, columns_;
  std::vector<std::byte> bytes_;
};

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b));
}

/// All rows read back, each value rounded to `dtype` as packing rounds it.
void check_reverse(const Weight& weight, const Source& source, DType dtype) {
  std::vector<float> row(static_cast<std::size_t>(weight.columns()));
  std::int64_t wrong = 0;
  for (std::int64_t e = 0; e < weight.experts(); ++e) {
    for (std::int64_t n = 0; n < weight.rows(); ++n) {
      weight.read_row(e, n, row);
      for (std::int64_t k = 0; k < weight.columns(); ++k) {
        const float value = source.value(e, n, k);
        const float expected = dtype == DType::bf16  ? to_float(to_bf16(value))
                               : dtype == DType::f16 ? to_float(to_f16(value))
                                                     : value;
        if (!same_bits(row[static_cast<std::size_t>(k)], expected)) ++wrong;
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_SUITE("kernels/weight") {
  TEST_CASE("packing and reading back gives every value, whatever the types, sizes and threads") {
    struct Shape {
      std::int64_t experts, rows, columns;
    };
    for (const Shape s : {Shape{1, 1, 1}, Shape{1, 64, 128}, Shape{1, 65, 129}, Shape{3, 63, 127},
                          Shape{2, 130, 300}, Shape{1, 200, 2}, Shape{5, 24, 7}}) {
      for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
        const Source source(from, s.experts, s.rows, s.columns);
        check_reverse(Weight::view(source.source()), source, DType::f32);
        for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
          for (const int threads : {1, 3}) {
            CAPTURE(s.rows);
            CAPTURE(s.columns);
            CAPTURE(name_of(from));
            CAPTURE(name_of(to));
            Queue queue(Device::cpu, {.threads = threads, .isa = {}});
            const Weight weight = Weight::pack(queue, source.source(), to);
            CHECK(weight.format() == WeightFormat::panels);
            CHECK(weight.dtype() == to);
            CHECK(weight.activation_dtype() == (to == DType::bf16 ? DType::bf16 : DType::f32));
            check_reverse(weight, source, to);
          }
        }
      }
    }
  }

  TEST_CASE("rows of several tensors, of any type and in any order, are one weight") {
    constexpr std::int64_t columns = 150;
    const Source a(DType::bf16, 1, 90, columns), b(DType::f16, 1, 7, columns);
    const std::span<const std::byte> a_bytes(a.source().strips[0].bytes, 90 * columns * 2);
    const std::span<const std::byte> b_bytes(b.source().strips[0].bytes, 7 * columns * 2);
    WeightSource source(2, 96, columns);  // 192 rows: b, a from row 70 on, a up to 70, a, 5 of b
    source.append(DType::f16, 7, b_bytes);
    source.append(DType::bf16, 20, a_bytes.subspan(70 * columns * 2));
    source.append(DType::bf16, 70, a_bytes.first(70 * columns * 2));
    source.append(DType::bf16, 90, a_bytes);
    source.append(DType::f16, 5, b_bytes.first(5 * columns * 2));
    const auto value = [&](std::int64_t row, std::int64_t k) {
      if (row < 7) return b.value(0, row, k);
      if (row < 27) return a.value(0, row - 7 + 70, k);
      if (row < 97) return a.value(0, row - 27, k);
      return row < 187 ? a.value(0, row - 97, k) : b.value(0, row - 187, k);
    };
    for (const DType to : {DType::bf16, DType::f32}) {
      for (const int threads : {1, 2}) {
        Queue queue(Device::cpu, {.threads = threads, .isa = {}});
        const Weight weight = Weight::pack(queue, source, to);
        std::vector<float> row(columns);
        int wrong = 0;
        for (std::int64_t r = 0; r < 192; ++r) {
          weight.read_row(r / 96, r % 96, row);
          for (std::int64_t k = 0; k < columns; ++k) {
            const float expected = to == DType::f32 ? value(r, k) : to_float(to_bf16(value(r, k)));
            if (!same_bits(row[static_cast<std::size_t>(k)], expected)) ++wrong;
          }
        }
        CHECK(wrong == 0);
      }
    }
  }

  TEST_CASE("what lies past the last row and column is zero") {
    Queue queue(Device::cpu, {.threads = 1, .isa = {}});
    for (const DType type : {DType::bf16, DType::f16}) {
      const Source source(type, 1, 3, 5);
      const Weight weight = Weight::pack(queue, source.source(), type);
      REQUIRE(weight.owned_bytes() == 3 * 64 * 2 * 2);
      const bool is_paired = type == DType::bf16;
      for (std::size_t i = 0; i < weight.owned_bytes() / 2; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, weight.expert(0) + i * 2, sizeof(bits));
        const std::size_t k = is_paired ? i / 128 * 2 + i % 2 : i / 64;
        const std::size_t n = is_paired ? i / 2 % 64 : i % 64;
        if (n >= 3 || k >= 5) CHECK(bits == 0);
      }
    }
  }

  TEST_CASE("a view owns nothing and reads nothing") {
    const Source source(DType::f16, 2, 4, 6);
    const Weight weight = Weight::view(source.source());
    CHECK(weight.owned_bytes() == 0);
    CHECK(weight.expert(1) == source.source().strips[0].bytes + 4 * 6 * 2);
  }

  TEST_CASE("bytes that do not fit the shape, and other types, are model errors") {
    const std::vector<std::byte> bytes(48);
    CHECK_THROWS_AS(Weight::view({DType::f32, 1, 3, 5, bytes}), Error);
    CHECK_THROWS_AS(Weight::view({DType::f32, INT64_MAX / 2, 3, 4, bytes}), Error);
    CHECK_THROWS_AS(Weight::view({DType::i32, 1, 3, 4, bytes}), Error);
    CHECK(Weight::view({DType::f32, 1, 3, 4, bytes}).columns() == 4);
  }

  TEST_CASE("half precision is exact, denormals too, also where denormals are flushed") {
    Queue queue(Device::cpu, {.threads = 1, .isa = {}});
    std::vector<float> flushed(0x10000);
    queue.alone([&](int, int) {
      for (std::uint32_t h = 0; h < 0x10000; ++h) {
        flushed[h] = to_float(f16{static_cast<std::uint16_t>(h)});
      }
    });
    int wrong = 0;
    for (std::uint32_t h = 0; h < 0x10000; ++h) {
      const int exponent = static_cast<int>(h >> 10 & 31);
      const int fraction = static_cast<int>(h & 1023);
      float expected = exponent == 0
                           ? std::ldexp(static_cast<float>(fraction), -24)
                           : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
      if (exponent == 31) expected = fraction == 0 ? INFINITY : NAN;
      if ((h & 0x8000) != 0) expected = -expected;
      if (!same_bits(flushed[h], expected)) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

}  // namespace weight_test
