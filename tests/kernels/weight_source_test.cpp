#include "kernels/weight_source.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/base/error.h"
#include "kernels/queue.h"

namespace weight_source_test {

using namespace hyb;
using namespace hyb::kernels;

namespace {

struct Fp8 {
  Fp8(std::int64_t rows, std::int64_t columns, std::int64_t row_block, std::int64_t column_block)
      : columns_(columns), row_block_(row_block), column_block_(column_block) {
    std::mt19937 engine(1);
    codes.resize(static_cast<std::size_t>(rows * columns));
    for (std::byte& code : codes) code = static_cast<std::byte>(engine() % 0x7f);
    scales.resize(static_cast<std::size_t>(((rows - 1) / row_block + 1) * blocks()));
    for (float& scale : scales) scale = static_cast<float>(1 + engine() % 1000);
  }
  std::int64_t blocks() const { return (columns_ - 1) / column_block_ + 1; }
  WeightScales published() const {
    return {.dtype = DType::f32,
            .bytes = std::as_bytes(std::span(scales)),
            .row_block = row_block_,
            .column_block = column_block_};
  }
  float value(std::int64_t n, std::int64_t k) const {
    const auto scale = static_cast<std::size_t>(n / row_block_ * blocks() + k / column_block_);
    return e4m3_to_float(
               static_cast<std::uint8_t>(codes[static_cast<std::size_t>(n * columns_ + k)])) *
           scales[scale];
  }

  std::vector<std::byte> codes;
  std::vector<float> scales;

 private:
  std::int64_t columns_, row_block_, column_block_;
};

}  // namespace

TEST_SUITE("kernels/weight_source") {
  TEST_CASE("a row brings its scales along, wherever it is appended") {
    constexpr std::int64_t rows = 200, columns = 150;
    for (const auto& [row_block, column_block] :
         {std::pair{128, 128}, {rows, columns}, {1, columns}, {64, 128}}) {
      CAPTURE(row_block);
      const Fp8 tensor(rows, columns, row_block, column_block);
      WeightSource whole(1, rows, columns);
      whole.append(DType::f8_e4m3, rows, tensor.codes, tensor.published());
      WeightSource turned(1, 300, columns);  // rows 150..199, 0..149, 100..199
      turned.append(whole, 150, 50);
      turned.append(whole, 0, 150);
      WeightSource again(1, 300, columns);  // the same, by a source that was appended itself
      turned.append(whole, 100, 100);
      again.append(turned, 0, 300);
      for (const WeightSource* source : {&turned, &again}) {
        CHECK(source->is_all(DType::f8_e4m3));
        CHECK(source->scale_columns() == (column_block < columns ? 128 : 0));
        int wrong = 0;
        for (std::int64_t n = 0; n < 300; ++n) {
          const std::int64_t from = n < 50 ? n + 150 : n < 200 ? n - 50 : n - 100;
          for (std::int64_t k = 0; k < columns; ++k) {
            if (published_value(source->row(n), k) != tensor.value(from, k)) ++wrong;
          }
        }
        CHECK(wrong == 0);
      }
    }
  }

  TEST_CASE("scales that do not fit, or of other types, are model errors") {
    const Fp8 tensor(20, 30, 128, 128);
    WeightSource source(1, 20, 30);
    WeightScales scales = tensor.published();
    CHECK_THROWS_AS(source.append(DType::bf16, 10, tensor.codes, scales), Error);
    scales.column_block = 16;
    CHECK_THROWS_AS(source.append(DType::f8_e4m3, 20, tensor.codes, scales), Error);
    scales = tensor.published();
    scales.dtype = DType::i32;
    CHECK_THROWS_AS(source.append(DType::f8_e4m3, 20, tensor.codes, scales), Error);
    CHECK_THROWS_AS(source.append(DType::f8_e4m3, 21, tensor.codes, tensor.published()), Error);
    source.append(DType::f8_e4m3, 20, tensor.codes, tensor.published());
  }

  TEST_CASE("groups that do not divide a row, or have other bytes, are model errors") {
    const std::vector<std::byte> codes(4 * 48), scales(4 * 6 * 2), few(3);
    const auto append = [&](std::int64_t columns, std::int64_t group, WeightScales published) {
      published.dtype = DType::f16;
      published.column_block = group;
      const auto half = static_cast<std::size_t>(4 * columns / 2);
      WeightSource(1, 4, columns).append(DType::u8, 4, std::span(codes).first(half), published);
    };
    const std::span<const std::byte> all(scales);
    CHECK_NOTHROW(append(96, 16, {.bytes = all}));
    CHECK_THROWS_AS(append(96, 20, {.bytes = all}), Error);
    CHECK_THROWS_AS(append(96, 4, {.bytes = all}), Error);
    CHECK_THROWS_AS(append(80, 16, {.bytes = all}), Error);
    CHECK_THROWS_AS(append(96, 32, {.bytes = all}), Error);
    CHECK_THROWS_AS(append(96, 16, {.bytes = all, .zeros = few}), Error);
  }

  TEST_CASE("F8_E4M3 is exact, subnormals too, also where denormals are flushed") {
    Queue queue(Device::cpu, {.threads = 1, .isa = {}});
    std::vector<float> values(256);
    queue.alone([&](int, int) {
      for (unsigned code = 0; code < 256; ++code) {
        values[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
      }
    });
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, fraction = code & 7;
      float expected = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                     : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
      if (code >= 128) expected = -expected;
      const float value = values[static_cast<std::size_t>(code)];
      if ((code & 0x7f) == 0x7f) {
        CHECK(std::isnan(value));
      } else {
        CHECK(value == expected);
        CHECK(std::signbit(value) == (code >= 128));
        CHECK(to_float(to_bf16(value)) == value);
      }
    }
  }
}

}  // namespace weight_source_test
