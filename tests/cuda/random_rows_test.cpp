#include "kernels/linear/random_rows.h"

#include <cstring>
#include <vector>

#include "kernels/linear/bits12_rows.h"
#include "kernels/linear/upload.h"
#include "kernels/transfer.h"
#include "kernels/weight.h"
#include "tests/cuda/support.h"

namespace random_rows_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Rows of two tensors, some of them apart and in another order.
WeightSource cut(std::int64_t rows, std::int64_t columns, DType dtype = DType::bf16) {
  const WeightSource first(RandomNumbers{.stream = 7, .reach = 0.25F, .dtype = dtype}, 1, rows,
                           columns),
      second(RandomNumbers{.stream = ~std::uint64_t{0} - 3, .reach = 1.1F, .dtype = dtype}, 1, rows,
             columns);
  WeightSource all(1, 2 * rows, columns);
  all.append(first, rows / 2, rows - rows / 2);
  all.append(second, 0, rows);
  all.append(first, 0, rows / 2);
  return all;
}

std::vector<std::byte> downloaded(Queue& queue, const Weight& weight) {
  std::vector<std::byte> bytes(weight.owned_bytes());
  download(queue, bytes, weight.expert(0));
  return bytes;
}

/// The bf16 of every row of 12 bits without patches.
std::vector<std::uint16_t> widened(const Bits12RowsShape& shape, std::span<const std::byte> experts,
                                   std::int64_t count) {
  std::vector<std::uint16_t> all;
  for (std::int64_t row = 0; row < count * shape.rows; ++row) {
    const std::byte* const expert = experts.data() + row / shape.rows * shape.expert_bytes();
    const std::int64_t n = row % shape.rows;
    Bits12RowHeader header;
    std::memcpy(&header, expert + shape.headers_at() + n * 8, sizeof(header));
    CHECK(header.first_patch == Bits12RowHeader::no_column);
    for (std::int64_t k = 0; k < shape.columns; ++k) {
      const std::byte* const half = expert + n * shape.row_bytes() + k / 64 * 96;
      const std::int64_t eight = k % 32 / 8 * 2 + k % 64 / 32;
      const auto rest = static_cast<unsigned>(half[eight * 8 + k % 8]);
      std::uint32_t word;
      std::memcpy(&word, half + 64 + eight * 4, sizeof(word));
      const std::uint32_t code = word >> (k % 8 / 2 * 4 + k % 2 * 16) & 15U;
      all.push_back(static_cast<std::uint16_t>((rest & 0x80U) << 8 | (header.base + code) << 7 |
                                               (rest & 0x7fU)));
    }
  }
  return all;
}

/// What the CPU makes of the same rows, and uploads as it does with published ones.
void check_same(Queue& queue, const WeightSource& source, DType dtype,
                Quantize quantize = Quantize::none) {
  const Weight weight = Weight::pack(queue, source, dtype, quantize);
  std::vector<std::byte> expected(weight.owned_bytes());
  Buffer uploaded(Device::cuda, expected.size());
  if (weight.code() == WeightCode::bits12) {
    std::vector<std::uint16_t> numbers;
    for (std::int64_t row = 0; row < source.experts * source.rows; ++row) {
      for (std::int64_t k = 0; k < source.columns; ++k) {
        numbers.push_back(to_bf16(published_value(source.row(row), k)).bits);
      }
    }
    const Bits12RowsShape shape = {source.rows, source.columns};
    REQUIRE(std::ssize(expected) == source.experts * shape.expert_bytes());
    CHECK(widened(shape, downloaded(queue, weight), source.experts) == numbers);
    return;
  }
  if (weight.code() == WeightCode::plain) {
    upload_rows(queue, source, dtype, uploaded.data());
  } else {
    const CodedRowsShape shape = {weight.code(), source.rows, source.columns};
    REQUIRE(std::ssize(expected) == source.experts * shape.expert_bytes());
    upload_codes(queue, source, shape, uploaded.data());
  }
  download(queue, expected, uploaded.data());
  CHECK(downloaded(queue, weight) == expected);
}

}  // namespace

TEST_SUITE("cuda/random_rows") {
  TEST_CASE("what the card makes up is what the CPU makes up, to the bit") {
    in_every_schedule([](const std::string& name) {
      CAPTURE(name);
      Queue queue(Device::cuda, {.threads = 2, .isa = {}});
      for (const DType dtype : {DType::bf16, DType::f32}) {
        for (const std::int64_t columns : {1, 7, 64, 2049}) {
          CAPTURE(columns);
          check_same(queue, cut(5, columns), dtype);
          check_same(queue, {RandomNumbers{.stream = 99, .reach = 0.1F}, 3, 4, columns}, dtype);
        }
      }
      const RandomNumbers halves = {.stream = 5, .reach = 0.1F, .dtype = DType::f16};
      for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
        check_same(queue, {halves, 3, 4, 130}, dtype);
      }
    });
  }

  TEST_CASE("the same codes and scales, in every code and shape, of matrices and of experts") {
    in_every_schedule([](const std::string& name) {
      CAPTURE(name);
      Queue queue(Device::cuda, {.threads = 2, .isa = {}});
      for (const std::int64_t columns : {1, 32, 95, 130, 200, 384}) {
        CAPTURE(columns);
        const RandomNumbers numbers = {.stream = 99, .reach = 0.013F * static_cast<float>(columns)};
        for (const Quantize quantize : {Quantize::q8, Quantize::q4, Quantize::bits12}) {
          CAPTURE(static_cast<int>(quantize));
          check_same(queue, cut(5, columns), DType::bf16, quantize);
          check_same(queue, {numbers, 3, 7, columns}, DType::bf16, quantize);
        }
        for (const DType published : {DType::f8_e4m3, DType::u8}) {
          CAPTURE(static_cast<int>(published));
          RandomNumbers coded = numbers;
          coded.dtype = published;
          check_same(queue, cut(5, columns, published), DType::bf16);
          check_same(queue, {coded, 3, 7, columns}, DType::bf16);
          check_same(queue, {coded, 3, 7, columns}, DType::f32);
          CHECK(Weight::pack(queue, {coded, 3, 7, columns}, DType::bf16, Quantize::bits12).code() ==
                (published == DType::u8 ? WeightCode::mxfp4 : WeightCode::fp8));
        }
      }
    });
  }

  TEST_CASE("12 bits of FP8 beside BF16 are packed by the CPU") {
    Queue queue(Device::cuda, {.threads = 2, .isa = {}});
    constexpr std::int64_t rows = 8, columns = 128;
    WeightSource mixed(1, 2 * rows, columns);
    for (const DType dtype : {DType::f8_e4m3, DType::bf16}) {
      mixed.append({RandomNumbers{.stream = 3, .reach = 0.1F, .dtype = dtype}, 1, rows, columns}, 0,
                   rows);
    }
    CHECK(!card_makes(mixed, WeightCode::bits12, DType::bf16));
    CHECK(card_makes(mixed, WeightCode::plain, DType::bf16));
    check_same(queue, mixed, DType::bf16);
    CHECK(Weight::pack(queue, mixed, DType::bf16, Quantize::bits12).code() != WeightCode::fp8);
  }
}

}  // namespace random_rows_test
