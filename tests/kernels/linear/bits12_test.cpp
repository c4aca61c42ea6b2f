#include "kernels/linear/bits12.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/pack.h"
#include "kernels/weight.h"
#include "tests/kernels/linear/coded_weights.h"
#include "tests/kernels/support.h"

namespace bits12_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Weights as training leaves them, or as nothing leaves them.
struct Kind {
  const char* name;
  std::function<std::uint16_t(std::mt19937&, std::int64_t)> bits;  ///< of weight i
  bool pays = true;
};

std::uint16_t gaussian(std::mt19937& engine) {
  return to_bf16(std::normal_distribution<float>(0.0F, 0.02F)(engine)).bits;
}

const std::uint16_t odd_bits[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x7f80, 0xff80,
                                  0x7fc0, 0xffc1, 0x7f81, 0x7f7f, 0x0080, 0xfeff};

std::vector<Kind> kinds() {
  return {
      {"trained", [](std::mt19937& engine, std::int64_t) { return gaussian(engine); }},
      {"trained, with odd ones",
       [](std::mt19937& engine, std::int64_t) {
         const bool is_odd = engine() % 1500 == 0;
         return is_odd ? odd_bits[engine() % std::size(odd_bits)] : gaussian(engine);
       }},
      {"half zeros of both signs",
       [](std::mt19937& engine, std::int64_t) -> std::uint16_t {
         const auto coin = engine() % 4;
         return coin == 0 ? 0 : coin == 1 ? 0x8000 : gaussian(engine);
       }},
      {"one value", [](std::mt19937&, std::int64_t) -> std::uint16_t { return 0xbf81; }},
      {"zeros alone", [](std::mt19937&, std::int64_t) -> std::uint16_t { return 0; }},
      {"NaN alone", [](std::mt19937&, std::int64_t) -> std::uint16_t { return 0x7fd5; }},
      {"denormals", [](std::mt19937& engine,
                       std::int64_t) { return static_cast<std::uint16_t>(engine() & 0x807fU); }},
      {"any bits",
       [](std::mt19937& engine, std::int64_t) { return static_cast<std::uint16_t>(engine()); },
       false}};
}

struct Matrix {
  Matrix(const Kind& kind, std::int64_t experts, std::int64_t rows, std::int64_t columns)
      : bits(static_cast<std::size_t>(experts * rows * columns)),
        source(DType::bf16, experts, rows, columns, std::as_bytes(std::span(bits))) {
    std::mt19937 engine(7);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      bits[i] = kind.bits(engine, static_cast<std::int64_t>(i));
    }
  }

  std::vector<std::uint16_t> bits;
  WeightSource source;
};

}  // namespace

TEST_SUITE("kernels/linear/bits12") {
  TEST_CASE("what is packed and read again has the bits of bf16 panels, whatever they are") {
    Queue queue = test_queue(best_isa(), 2);
    for (const Kind& kind : kinds()) {
      const std::string name = kind.name;
      CAPTURE(name);
      for (const auto& [rows, columns] : {std::pair{1, 1}, {64, 2}, {65, 31}, {130, 260}}) {
        CAPTURE(rows);
        CAPTURE(columns);
        const Matrix matrix(kind, 2, rows, columns);
        const Bits12Shape shape = bits12_shape(rows, columns);
        std::vector<std::byte> panels(static_cast<std::size_t>(2 * shape.expert_bytes()));
        const Buffer patches = pack_bits12_panels(queue, matrix.source, panels.data());
        const Weight plain = Weight::pack(queue, matrix.source, DType::bf16);
        for (std::int64_t r = 0; r < 2 * rows; ++r) {
          const std::int64_t panel = r / rows * shape.panels + r % rows / 64;
          std::vector<float> row(static_cast<std::size_t>(columns)), expected = row;
          read_bits12_row(panels.data() + panel * shape.panel_bytes(),
                          reinterpret_cast<const Bits12Patch*>(patches.data()), r % rows % 64, row);
          plain.read_row(r / rows, r % rows, expected);
          CHECK(std::memcmp(row.data(), expected.data(), row.size() * sizeof(float)) == 0);
        }
      }
    }
  }

  TEST_CASE("every instruction set packs the same bytes; samples count the patches") {
    for (const Kind& kind : kinds()) {
      const std::string name = kind.name;
      CAPTURE(name);
      const Matrix matrix(kind, 1, 70, 262);
      const Bits12Shape shape = bits12_shape(70, 262);
      const auto packed = [&](Isa isa) {
        Queue queue = test_queue(isa, 1);
        std::vector<std::byte> all(static_cast<std::size_t>(shape.expert_bytes()));
        const Buffer patches = pack_bits12_panels(queue, matrix.source, all.data());
        all.insert(all.end(), patches.data(), patches.data() + patches.bytes());
        return all;
      };
      const std::vector<std::byte> expected = packed(Isa::plain);
      for (const Isa isa : available_isas()) CHECK(packed(isa) == expected);
      const Bits12Sample sample = sample_bits12(matrix.source, 9);
      CHECK(sample.weights == 2 * shape.lines * 128);
      const auto patches = static_cast<std::size_t>(sample.patches) * sizeof(Bits12Patch);
      CHECK(expected.size() == static_cast<std::size_t>(shape.expert_bytes()) + patches);
      CHECK(sample.pays() == kind.pays);
      CHECK(sample_bits12(matrix.source, 1).weights == shape.lines * 128);
    }
  }

  TEST_CASE("each place of a line can be a patch, and is one where its exponent is far away") {
    Queue queue = test_queue(best_isa(), 1);
    for (int place = 0; place < 128; ++place) {
      CAPTURE(place);
      const std::int64_t index = place / 2 * 2 + place % 2;
      const Kind kind = {"one far away", [&](std::mt19937& engine, std::int64_t i) {
                           return i == index ? std::uint16_t{0x7fc1} : gaussian(engine);
                         }};
      const Matrix matrix(kind, 1, 64, 2);
      std::vector<std::byte> panel(static_cast<std::size_t>(bits12_shape(64, 2).panel_bytes()));
      const Buffer patches = pack_bits12_panels(queue, matrix.source, panel.data());
      const auto* const list = reinterpret_cast<const Bits12Patch*>(patches.data());
      const std::size_t count = patches.bytes() / sizeof(Bits12Patch);
      CHECK(std::count_if(list, list + count, [&](const Bits12Patch& patch) {
              return patch.line == 0 && patch.place == place && patch.bits == 0x7fc1;
            }) == 1);
      CHECK(bits12_header(panel.data()).patches == count);
    }
  }

  TEST_CASE("every product has the bits that bf16 panels give, on every instruction set") {
    for (const Kind& kind : kinds()) {
      const std::string name = kind.name;
      CAPTURE(name);
      for (const auto& [outputs, columns] : {std::pair{64, 64}, {65, 31}, {130, 1027}}) {
        CAPTURE(outputs);
        CAPTURE(columns);
        const Matrix matrix(kind, 1, outputs, columns);
        for (const Isa isa : available_isas()) {
          CAPTURE(kernels::testing::name_of(isa));
          Queue queue = test_queue(isa, 2);
          const Weight plain = Weight::pack(queue, matrix.source, DType::bf16);
          const Weight narrow = Weight::pack(queue, matrix.source, DType::bf16, Quantize::bits12);
          CHECK((narrow.code() == WeightCode::bits12) == kind.pays);
          const bool is_wide = columns > 1000;
          if (kind.pays && is_wide) CHECK(narrow.owned_bytes() < 0.78 * plain.owned_bytes());
          for (const std::int64_t rows :
               {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 24, 25, 64, 300}) {
            if (isa == Isa::plain && rows > 17 && is_wide) continue;
            CAPTURE(rows);
            const TestTensor x = random_tensor(DType::bf16, {rows, columns}, 4, 1.0F, {3, 1});
            TestTensor expected(DType::f32, {rows, outputs}), y(DType::f32, {rows, outputs});
            linear(queue, {.x = x, .weight = &plain, .y = expected});
            linear(queue, {.x = x, .weight = &narrow, .y = y});
            CHECK(same_bytes(expected, y));
          }
        }
      }
    }
  }

  TEST_CASE("experts have their own panels and patches; so has what is rounded to bf16") {
    Queue queue = test_queue(best_isa(), 2);
    const Kind kind = kinds()[1];
    const Matrix matrix(kind, 3, 70, 300);
    const Weight plain = Weight::pack(queue, matrix.source, DType::bf16);
    const Weight narrow = Weight::pack(queue, matrix.source, DType::bf16, Quantize::bits12);
    REQUIRE(narrow.code() == WeightCode::bits12);
    const TestTensor x = random_tensor(DType::bf16, {9, 300}, 14);
    for (std::int64_t e = 0; e < 3; ++e) {
      TestTensor y(DType::bf16, {9, 70}), expected(DType::bf16, {9, 70});
      linear(queue, {.x = x, .weight = &narrow, .expert = e, .y = y});
      linear(queue, {.x = x, .weight = &plain, .expert = e, .y = expected});
      CHECK(same_bytes(y, expected));
    }
    std::vector<float> wide(70 * 300);
    std::mt19937 engine(3);
    for (float& value : wide) value = std::normal_distribution<float>(0.0F, 1.0F)(engine);
    const WeightSource of_f32(DType::f32, 1, 70, 300, std::as_bytes(std::span(wide)));
    const Weight rounded = Weight::pack(queue, of_f32, DType::bf16, Quantize::bits12);
    TestTensor y(DType::f32, {9, 70}), expected(DType::f32, {9, 70});
    const Weight as_bf16 = Weight::pack(queue, of_f32, DType::bf16);
    linear(queue, {.x = x, .weight = &rounded, .y = y});
    linear(queue, {.x = x, .weight = &as_bf16, .y = expected});
    CHECK(rounded.code() == WeightCode::bits12);
    CHECK(same_bytes(y, expected));
  }

  TEST_CASE("published F8_E4M3 stays what it is") {
    Queue queue = test_queue(best_isa(), 1);
    const PublishedMatrix published(DType::f8_e4m3, 1, 64, 128, 128, 128, 5);
    CHECK(Weight::pack(queue, published.source, DType::bf16, Quantize::bits12).code() ==
          WeightCode::fp8);
  }
}

}  // namespace bits12_test
