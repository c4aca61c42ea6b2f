#include <cmath>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "kernels/linear/pack.h"
#include "kernels/linear/quantize.h"
#include "kernels/ops/gather.h"
#include "kernels/weight_source.h"
#include "tests/kernels/linear/coded_weights.h"
#include "tests/kernels/support.h"

namespace pack_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// How far row r's elements may be from the published ones.
void check_row(const CodedMatrix& w, std::int64_t r, std::span<const float> values) {
  const WeightRow published = w.published.source.row(r);
  const std::int64_t columns = w.weight.columns(), group = w.weight.group();
  for (std::int64_t first = 0; first < columns; first += group) {
    const std::int64_t end = std::min(columns, first + group);
    float largest = 0;
    for (std::int64_t k = first; k < end; ++k) {
      largest = std::max(largest, std::fabs(published_value(published, k)));
    }
    const double allowed = w.weight.code() == WeightCode::q8   ? q8_error
                           : w.weight.code() == WeightCode::q4 ? q4_error
                                                               : 0.0;
    double worst = 0;
    for (std::int64_t k = first; k < end; ++k) {
      const double off = values[static_cast<std::size_t>(k)] - published_value(published, k);
      worst = std::max(worst, std::fabs(off));
    }
    CHECK(worst <= allowed * static_cast<double>(largest));
  }
}

}  // namespace

TEST_SUITE("kernels/linear/coded_pack") {
  TEST_CASE("packing and reading back keeps the bound of each format, for any size and threads") {
    struct Shape {
      std::int64_t experts, rows, columns;
    };
    for (const Shape s : {Shape{1, 1, 1}, Shape{1, 64, 31}, Shape{2, 65, 33}, Shape{3, 63, 68},
                          Shape{1, 130, 157}, Shape{1, 20, 1100}}) {
      for (const WeightCode code : all_codes) {
        for (const int threads : {1, 3}) {
          CAPTURE(s.columns);
          CAPTURE(kernels::testing::name_of(code));
          Queue queue = test_queue(best_isa(), threads);
          const CodedMatrix w(queue, code, s.experts, s.rows, s.columns, 9, threads == 1);
          CHECK(w.weight.code() == code);
          CHECK(w.weight.format() == WeightFormat::panels);
          const std::vector<float> values = w.values();
          for (std::int64_t r = 0; r < s.experts * s.rows; ++r) {
            check_row(w, r,
                      std::span(values).subspan(static_cast<std::size_t>(r * s.columns),
                                                static_cast<std::size_t>(s.columns)));
          }
        }
      }
    }
  }

  TEST_CASE("a number takes 4.25, 4.5, 8.5, or 8 bits and its share of a scale") {
    Queue queue = test_queue(best_isa(), 1);
    constexpr std::int64_t rows = 128, columns = 2048;
    const auto bits = [&](WeightCode code, bool blocks) {
      const CodedMatrix w(queue, code, 1, rows, columns, 3, blocks);
      return static_cast<double>(w.weight.owned_bytes()) * 8 / (rows * columns);
    };
    CHECK(bits(WeightCode::mxfp4, false) == 4.25);
    CHECK(bits(WeightCode::q4, false) == 4.5);
    CHECK(bits(WeightCode::q8, false) == 8.5);
    CHECK(bits(WeightCode::fp8, true) == 8.25);
    CHECK(bits(WeightCode::fp8, false) == 8.03125);
  }

  TEST_CASE("what a source becomes: FP8 stays under q8, mixes are plain, f32 is dequantized") {
    Queue queue = test_queue(best_isa(), 1);
    const PublishedMatrix fp8(DType::f8_e4m3, 1, 70, 200, 128, 128, 4);
    const PublishedMatrix half(DType::bf16, 1, 10, 200, 1, 200, 5);
    const auto pack = [&](const WeightSource& source, DType dtype, Quantize quantize) {
      return Weight::pack(queue, source, dtype, quantize);
    };
    CHECK(pack(fp8.source, DType::bf16, Quantize::q8).code() == WeightCode::fp8);
    CHECK(pack(fp8.source, DType::bf16, Quantize::q4).code() == WeightCode::q4);
    CHECK(pack(half.source, DType::bf16, Quantize::none).code() == WeightCode::plain);
    WeightSource mixed(1, 80, 200);
    mixed.append(fp8.source, 0, 70);
    mixed.append(half.source, 0, 10);
    const Weight plain = pack(mixed, DType::bf16, Quantize::none);
    const Weight wide = pack(mixed, DType::f32, Quantize::none);
    CHECK(plain.code() == WeightCode::plain);
    std::vector<float> a(200), b(200);
    for (const std::int64_t n : {0, 69, 70, 79}) {
      plain.read_row(0, n, a);
      wide.read_row(0, n, b);
      for (std::int64_t k = 0; k < 200; ++k) {
        const float value = published_value(mixed.row(n), k);
        CHECK(b[static_cast<std::size_t>(k)] == value);
        CHECK(a[static_cast<std::size_t>(k)] == to_float(to_bf16(value)));
      }
    }
  }

  TEST_CASE("MXFP4 stays what it is; scales at the ends of their range; mixes are plain") {
    Queue queue = test_queue(best_isa(), 1);
    PublishedMatrix mx(DType::u8, 1, 70, 96, 1, 1, 4);
    mx.mxfp4_scales[1] = std::byte{2};        // 2^-125: halves of less are denormal
    mx.mxfp4_scales[3 * 3] = std::byte{255};  // NaN
    for (const Quantize quantize : {Quantize::none, Quantize::q8, Quantize::q4, Quantize::bits12}) {
      const Weight weight = Weight::pack(queue, mx.source, DType::bf16, quantize);
      REQUIRE(weight.code() == WeightCode::mxfp4);
      const Weight wide = Weight::pack(queue, mx.source, DType::f32);
      CHECK(wide.code() == WeightCode::plain);
      std::vector<float> a(96), b(96);
      for (const std::int64_t n : {0, 3, 64, 69}) {
        weight.read_row(0, n, a);
        wide.read_row(0, n, b);
        for (std::size_t k = 0; k < 96; ++k) {
          if (n == 3 && k < 32) {
            CHECK(std::isnan(a[k]));
            CHECK(std::isnan(b[k]));
            continue;
          }
          CHECK(a[k] == b[k]);
          if (n != 0 || k / 32 != 1) continue;
          const unsigned code = mxfp4_code(mx.bytes.data(), static_cast<std::int64_t>(k));
          constexpr float sizes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
          CHECK(a[k] == std::ldexp(code < 8 ? sizes[code] : -sizes[code - 8], -125));
        }
      }
    }
    const PublishedMatrix half(DType::bf16, 1, 10, 96, 1, 96, 5);
    WeightSource mixed(1, 80, 96);
    mixed.append(mx.source, 0, 70);
    mixed.append(half.source, 0, 10);
    CHECK(Weight::pack(queue, mixed, DType::bf16).code() == WeightCode::plain);
    const std::vector<std::byte> few(16 * 3), scales(2);
    CHECK_THROWS_AS(
        WeightSource(1, 1, 96).append(DType::u8, 1, few,
                                      {.dtype = DType::u8, .bytes = scales, .column_block = 32}),
        Error);
  }

  TEST_CASE("every second row, and rows that are stored as columns") {
    Queue queue = test_queue(best_isa(), 1);
    constexpr std::int64_t experts = 3, rows = 70, columns = 96;
    for (const DType type : {DType::u8, DType::f8_e4m3, DType::bf16}) {
      CAPTURE(name_of(type));
      const PublishedMatrix matrix(type, experts, 2 * rows, columns, 1, columns, 4);
      WeightSource apart(experts, 2 * rows, columns);
      for (std::int64_t e = 0; e < experts; ++e) {
        apart.append(matrix.source, e * 2 * rows, rows, 2);
        apart.append(matrix.source, e * 2 * rows + 1, rows, 2);
      }
      const Weight weight = Weight::pack(queue, apart, DType::bf16);
      const Weight whole = Weight::pack(queue, matrix.source, DType::bf16);
      CHECK(weight.code() == whole.code());
      std::vector<float> a(columns), b(columns);
      for (std::int64_t e = 0; e < experts; ++e) {
        for (const std::int64_t n : {0, 1, 63, 69}) {
          for (const std::int64_t half : {0, 1}) {
            weight.read_row(e, half * rows + n, a);
            whole.read_row(e, 2 * n + half, b);
            CHECK(a == b);
          }
        }
      }
    }
    // Stored as [experts, columns, rows].
    const TestTensor stored = random_tensor(DType::bf16, {experts * columns, 2 * rows}, 3);
    const std::vector<std::byte> bytes = stored.packed();
    WeightSource turned(experts, 2 * rows, columns), apart(experts, 2 * rows, columns);
    const std::size_t expert_bytes = bytes.size() / experts;
    for (std::size_t e = 0; e < experts; ++e) {
      turned.append_transposed(DType::bf16, 2 * rows,
                               std::span(bytes).subspan(e * expert_bytes, expert_bytes));
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      apart.append(turned, e * 2 * rows, rows, 2);
      apart.append(turned, e * 2 * rows + 1, rows, 2);
    }
    for (const Quantize quantize : {Quantize::none, Quantize::bits12}) {
      const Weight weight = Weight::pack(queue, turned, DType::bf16, quantize);
      const Weight halves = Weight::pack(queue, apart, DType::bf16, quantize);
      std::vector<float> a(columns), b(columns);
      for (std::int64_t e = 0; e < experts; ++e) {
        for (const std::int64_t n : {0, 1, 63, 64, 139}) {
          weight.read_row(e, n, a);
          halves.read_row(e, n % 2 * rows + n / 2, b);
          CHECK(a == b);
          for (std::int64_t k = 0; k < columns; ++k) {
            CHECK(a[static_cast<std::size_t>(k)] == stored.get((e * columns + k) * 2 * rows + n));
          }
        }
      }
    }
    const Weight quantized = Weight::pack(queue, apart, DType::bf16, Quantize::q8);
    const Weight wide = Weight::pack(queue, apart, DType::f32);
    std::vector<float> a(columns), b(columns);
    quantized.read_row(1, 71, a);
    wide.read_row(1, 71, b);
    for (std::size_t k = 0; k < columns; ++k) CHECK(std::fabs(a[k] - b[k]) < 0.02F);
  }

  TEST_CASE("scales of blocks that are no multiple of 128 columns are a model error") {
    Queue queue = test_queue(best_isa(), 1);
    const PublishedMatrix odd(DType::f8_e4m3, 1, 70, 200, 128, 64, 4);
    CHECK_THROWS_AS(Weight::pack(queue, odd.source, DType::bf16), Error);
    CHECK(Weight::pack(queue, odd.source, DType::f32).code() == WeightCode::plain);
  }

  TEST_CASE("embed reads rows of f16 panels, exactly") {
    Queue queue = test_queue(best_isa(), 2);
    for (const std::int64_t columns : {70, 33}) {
      const TestTensor values = random_tensor(DType::f16, {90, columns}, 7);
      const auto bytes = values.packed();
      const Weight weight = Weight::pack(queue, {DType::f16, 1, 90, columns, bytes}, DType::f16);
      const Table tokens({89, 0, 63, 64});
      TestTensor y(DType::f32, {4, columns});
      embed(queue, {.weight = &weight, .tokens = tokens, .y = y, .scale = 2.0F});
      for (std::int64_t t = 0; t < 4; ++t) {
        for (std::int64_t k = 0; k < columns; ++k) {
          CHECK(y.get(t * columns + k) ==
                2.0F * values.get(tokens.values()[static_cast<std::size_t>(t)] * columns + k));
        }
      }
    }
  }

  TEST_CASE("embed reads rows of codes") {
    Queue queue = test_queue(best_isa(), 2);
    for (const WeightCode code : all_codes) {
      const CodedMatrix w(queue, code, 1, 90, 70, 6, false);
      const Table tokens({89, 0, 63, 64});
      TestTensor y(DType::f32, {4, 70});
      embed(queue, {.weight = &w.weight, .tokens = tokens, .y = y, .scale = 2.0F});
      const std::vector<float> values = w.values();
      for (std::int64_t t = 0; t < 4; ++t) {
        for (std::int64_t k = 0; k < 70; ++k) {
          const auto at =
              static_cast<std::size_t>(tokens.values()[static_cast<std::size_t>(t)] * 70 + k);
          CHECK(y.get(t * 70 + k) == 2.0F * values[at]);
        }
      }
    }
  }
}

}  // namespace pack_test
