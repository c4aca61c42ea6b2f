#include "kernels/linear/bits12_rows.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/floats.h"
#include "kernels/weight.h"
#include "tests/kernels/support.h"

namespace bits12_rows_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Row `row` of all experts', by the words of the header.
std::vector<std::uint16_t> read_row(const Bits12RowsShape& shape, const Bits12Rows& packed,
                                    std::int64_t row) {
  const std::byte* const expert = packed.experts.data() + row / shape.rows * shape.expert_bytes();
  const std::int64_t n = row % shape.rows;
  Bits12RowHeader header;
  std::memcpy(&header, expert + shape.headers_at() + n * 8, sizeof(header));
  std::vector<std::uint16_t> bits;
  for (std::int64_t k = 0; k < shape.columns; ++k) {
    const std::byte* const half = expert + n * shape.row_bytes() + k / 64 * 96;
    const std::int64_t eight = k % 32 / 8 * 2 + k % 64 / 32;
    const auto rest = static_cast<unsigned>(half[eight * 8 + k % 8]);
    std::uint32_t word;
    std::memcpy(&word, half + 64 + eight * 4, sizeof(word));
    const std::uint32_t code = word >> (k % 8 / 2 * 4 + k % 2 * 16) & 15U;
    bits.push_back(static_cast<std::uint16_t>((rest & 0x80U) << 8 | (header.base + code) << 7 |
                                              (rest & 0x7fU)));
  }
  if (header.first_patch == Bits12RowHeader::no_column) return bits;
  CHECK(header.first_patch == packed.patches[header.patches] >> 16);
  for (std::size_t i = header.patches; packed.patches[i] != bits12_no_patch; ++i) {
    bits[packed.patches[i] >> 16] = static_cast<std::uint16_t>(packed.patches[i] & 0xffffU);
  }
  return bits;
}

void check_round_trip(const std::function<std::uint16_t(std::mt19937&)>& draw) {
  Queue queue = test_queue(Isa::plain, 2);
  for (const auto& [rows, columns] : {std::pair{1, 1}, {3, 8}, {70, 64}, {65, 157}, {40, 1100}}) {
    CAPTURE(rows);
    CAPTURE(columns);
    std::mt19937 engine(11);
    std::vector<std::uint16_t> weights(static_cast<std::size_t>(2 * rows * columns));
    for (std::uint16_t& weight : weights) weight = draw(engine);
    const WeightSource source(DType::bf16, 2, rows, columns, std::as_bytes(std::span(weights)));
    const Bits12Rows packed = pack_bits12_rows(queue, source);
    const Bits12RowsShape shape = {rows, columns};
    REQUIRE(std::ssize(packed.experts) == 2 * shape.expert_bytes());
    CHECK(shape.expert_bytes() % 16 == 0);
    for (std::int64_t row = 0; row < 2 * rows; ++row) {
      const auto first = weights.begin() + row * columns;
      REQUIRE(read_row(shape, packed, row) == std::vector<std::uint16_t>(first, first + columns));
    }
  }
}

}  // namespace

TEST_SUITE("kernels/linear/bits12_rows") {
  TEST_CASE("what is packed and read again has the same bits, whatever they are") {
    std::normal_distribution<float> normal(0.0F, 0.02F);
    check_round_trip([&](std::mt19937& engine) { return to_bf16(normal(engine)).bits; });
    check_round_trip([](std::mt19937& engine) { return static_cast<std::uint16_t>(engine()); });
    check_round_trip([](std::mt19937&) { return std::uint16_t{0xffff}; });
    check_round_trip(
        [](std::mt19937& engine) { return static_cast<std::uint16_t>(engine() & 0x8000U); });
    check_round_trip([&](std::mt19937& engine) {
      return engine() % 2 == 0 ? std::uint16_t{0x8000} : to_bf16(normal(engine)).bits;
    });
  }

  TEST_CASE("patches are counted: 8 bits of exponent are too many, trained weights are none") {
    Queue queue = test_queue(Isa::plain, 1);
    std::mt19937 engine(3);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    constexpr std::int64_t count = std::int64_t{256} * 1024;
    std::vector<std::uint16_t> weights(count);
    for (std::uint16_t& weight : weights) weight = to_bf16(normal(engine)).bits;
    const WeightSource source(DType::bf16, 1, 256, 1024, std::as_bytes(std::span(weights)));
    const Bits12Rows trained = pack_bits12_rows(queue, source);
    CHECK(trained.patched > 0);
    CHECK(static_cast<double>(trained.patched) < 1.5e-4 * count);
    CHECK(bits12_rows_pay(trained.patched, count));
    for (std::uint16_t& weight : weights) weight = static_cast<std::uint16_t>(engine());
    CHECK_FALSE(bits12_rows_pay(pack_bits12_rows(queue, source).patched, count));
  }
}

}  // namespace bits12_rows_test
